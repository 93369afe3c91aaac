package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"os"
)

// This file is "Conformance" of docs/protocol.md: blocks and results as JSON, for stampede conform.

// A badInput says what is wrong with an input, and where.
type badInput string

const maxInputNesting = 256

// page is a JSON object of an answer.
type page = map[string]any

// runFiles executes the blocks of a file on the genesis of another one, and writes the outcome.
func runFiles(genesisPath, blocksPath, outPath string, wantsSteps bool) error {
	inputs := [2]any{}
	for i, path := range []string{genesisPath, blocksPath} {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if inputs[i], err = parseJSON(Bytes(data), maxInputNesting); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	answer, err := json.Marshal(answerTo(inputs[0], inputs[1], wantsSteps))
	if err != nil {
		return err
	}
	return os.WriteFile(outPath, append(answer, '\n'), 0o644)
}

// serve answers each line of the input, a case, with a line.
func serve(in io.Reader, out io.Writer) error {
	lines := bufio.NewReaderSize(in, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			answer, problem := json.Marshal(answerLine(Bytes(line)))
			if problem != nil {
				return problem
			}
			if _, problem = out.Write(append(answer, '\n')); problem != nil {
				return problem
			}
		}
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func answerLine(line Bytes) page {
	request, err := parseJSON(line, maxInputNesting)
	object, ok := request.(*Object)
	if err != nil || !ok {
		return page{"error": "$: no JSON object"}
	}
	if object.values["decode"] != nil {
		return page{"unsupported": "requests about bytes"}
	}
	return answerTo(object.values["genesis"], object.values["blocks"], object.values["steps"] == true)
}

// answerTo is the answer to a case: its outcome, or why there is none.
func answerTo(genesis, blocks any, wantsSteps bool) (answer page) {
	defer func() {
		switch problem := recover().(type) {
		case nil:
		case unsupported:
			answer = page{"unsupported": string(problem)}
		case badInput:
			answer = page{"error": string(problem)}
		default:
			panic(problem)
		}
	}()
	chain := readGenesis(genesis)
	chain.w.wantsSteps = wantsSteps
	shown := []any{}
	for i, given := range list(blocks, "blocks") {
		where := fmt.Sprintf("blocks[%d]", i)
		fields := object(given, where)
		proposer, transactions := address(fields["proposer"], where+".proposer"), []Transaction{}
		repeats := uint64(1)
		if fields["empty"] != nil {
			repeats = integer(fields["empty"], where+".empty").Uint64()
		} else {
			for j, tx := range list(fields["txs"], where+".txs") {
				transactions = append(transactions, readTransaction(tx, fmt.Sprintf("%s.txs[%d]", where, j)))
			}
		}
		for range repeats {
			shown = append(shown, chain.execute(proposer, transactions))
		}
	}
	return page{"blocks": shown, "final": chain.final()}
}

// --- input -----------------------------------------------------------------------------------------------------------

func object(value any, where string) map[string]any {
	found, ok := value.(*Object)
	if !ok {
		panic(badInput(where + ": expected an object"))
	}
	return found.values
}

func list(value any, where string) []any {
	found, ok := value.([]any)
	if !ok {
		panic(badInput(where + ": expected a list"))
	}
	return found
}

func address(value any, where string) Bytes {
	found, ok := addressOf(value)
	if !ok {
		panic(badInput(where + ": expected an address"))
	}
	return found
}

// integer is a number, which may be decimal text.
func integer(value any, where string) *big.Int {
	if text, ok := value.(string); ok {
		value = decimal(text)
	}
	found, ok := value.(*big.Int)
	if !ok || found == nil || found.Sign() < 0 {
		panic(badInput(where + ": expected an integer"))
	}
	return found
}

func integerOr0(value any, where string) *big.Int {
	if value == nil {
		return new(big.Int)
	}
	return integer(value, where)
}

func textOf(value any, where string) string {
	found, ok := value.(string)
	if !ok {
		panic(badInput(where + ": expected a text"))
	}
	return found
}

func readTransaction(given any, where string) Transaction {
	f := object(given, where)
	at := func(name string) string { return where + "." + name }
	u64 := func(name string) uint64 { return integer(f[name], at(name)).Uint64() }
	t := Transaction{
		sender: address(f["sender"], at("sender")), nonce: u64("nonce"), gas: u64("gas_limit"),
		cells: u64("cells_limit"), maxFee: integer(f["max_fee_per_cycle"], at("max_fee_per_cycle")),
		maxPriority: integer(f["max_priority_fee_per_cycle"], at("max_priority_fee_per_cycle")),
		maxCellFee:  integer(f["max_fee_per_cell"], at("max_fee_per_cell")),
		value:       integerOr0(f["value"], at("value")),
		timerBudget: integerOr0(f["timer_allowance"], at("timer_allowance")),
	}
	t.hash = tagged("transaction", t.sender+number8(t.nonce))
	switch kind := textOf(f["kind"], at("kind")); kind {
	case "transfer":
		t.action = []any{kind, address(f["to"], at("to"))}
	case "deploy":
		t.action = []any{kind, textOf(f["code"], at("code"))}
	case "call":
		payload, ok := payloadOf(f["payload"])
		if !ok {
			panic(badInput(at("payload") + ": expected a text, a list or {'hex': …}"))
		}
		t.action = []any{kind, address(f["to"], at("to")), textOf(f["handler"], at("handler")), payload}
	case "system":
		t.action = []any{kind, readInstruction(u64("opcode"), object(f["args"], at("args")), at("args"))}
	default:
		panic(badInput(at("kind") + ": unknown"))
	}
	return t
}

func readInstruction(opcode uint64, args map[string]any, where string) []any {
	if opcode == 49 {
		return []any{opcode, jsonText(args["config"])}
	}
	id := parseID(textOf(args["timer_id"], where+".timer_id"))
	if opcode == 48 {
		return []any{opcode, id}
	}
	return []any{opcode, id, integer(args["new_expires_at"], where+".new_expires_at").Uint64()}
}

// chain is a chain that shows each block, and its last state.
type chain struct {
	w     *World
	tree  *Tree
	given map[Bytes]bool // the accounts and actors of the genesis
}

// readGenesis makes the state at height 0: "genesis.json" of docs/protocol.md, and new_chain of spec/block.py.
func readGenesis(value any) *chain {
	f := object(value, "genesis")
	part := func(name string) *Object {
		if found, ok := f[name].(*Object); ok {
			return found
		}
		return &Object{}
	}
	policy, p := "cip1", defaults()
	if f["policy"] != nil {
		policy, _ = f["policy"].(string)
	}
	if policy != "cip1" && policy != "fifo" {
		panic(unsupported("policies other than cip1 and fifo"))
	}
	if runners, _ := f["runners"].([]any); len(runners) > 0 {
		panic(unsupported("jobs and runners"))
	}
	if f["preset"] == "hardened" {
		for name, value := range hardened {
			p[name] = value
		}
	}
	p.set(policy, part("params"))
	deployers, given, all := map[Bytes]bool{}, map[Bytes]bool{}, new(big.Int)
	if f["system_deployers"] != nil {
		for _, each := range list(f["system_deployers"], "system_deployers") {
			deployers[address(each, "system_deployers")] = true
		}
	}
	w := newWorld(policy, p, deployers)
	for _, where := range []string{"accounts", "actors"} {
		accounts := part(where)
		for _, name := range accounts.keys {
			at, entry := address(name, where), object(accounts.values[name], where+"."+name)
			balance := integerOr0(entry["balance"], where+"."+name+".balance")
			given[at], all = true, plus(all, balance)
			w.setAccount(at, balance, 0)
			if where == "actors" {
				w.setActor(at, readActor(entry, where+"."+name))
			}
		}
	}
	for name := range governed {
		w.put(storageKey(parametersAddress, storedKey(name)), storedText(p[name]))
	}
	for i := range w.counters {
		w.counters[i] = new(big.Int)
	}
	for _, place := range []int{basefeeOfCycle, basefeeOfCell, basefeeOfLane} {
		w.counters[place] = p.amount("INITIAL_BASEFEE")
	}
	w.counters[minted] = all
	w.keepCounters()
	tree := newTree()
	tree.apply(0, w.changesSince(0))
	return &chain{w, tree, given}
}

func readActor(entry map[string]any, where string) Actor {
	actor := Actor{code: textOf(entry["code"], where+".code"), deployer: address(entry["deployer"], where+".deployer")}
	if actor.code != scriptCode {
		panic(unsupported("actors with a program"))
	}
	if entry["gba"] != nil {
		agent := object(entry["gba"], where+".gba")
		fee, priority := agent["max_fee_per_cycle"], agent["max_priority_fee_per_cycle"]
		code := textOf(agent["code"], where+".gba.code")
		actor.agent = []any{code, integer(fee, where+".gba"), integer(priority, where+".gba")}
	}
	return actor
}

// --- output ----------------------------------------------------------------------------------------------------------

func addressText(address Bytes) string { return "0x" + hexText(address) }

func (c *chain) execute(proposer Bytes, transactions []Transaction) page {
	w, shown := c.w, []any{}
	b := w.begin(w.height+1, proposer)
	for _, t := range transactions {
		if refusal := b.execute(t); refusal != "" {
			shown = append(shown, page{"status": "rejected", "error": refusal, "cycles": 0, "cells": 0, "fee": 0})
			continue
		}
		receipt := b.receipts[len(b.receipts)-1]
		entry := receipt.Ended.page(page{"fee": plus(receipt.burned, receipt.tips)})
		if receipt.created != "" {
			entry["created"] = addressText(receipt.created)
		}
		shown = append(shown, entry)
	}
	b.finish()
	c.tree.apply(w.height, w.changesSince(0))
	block := b.page()
	block["txs"], block["state_root"] = shown, hexText(c.tree.root())
	if w.wantsSteps {
		steps := []any{}
		for _, step := range w.steps {
			steps = append(steps, step.page())
		}
		block["steps"] = steps
	}
	return block
}

// page adds how a run ended to an entry.
func (e Ended) page(entry page) page {
	entry["status"], entry["error"], entry["cycles"], entry["cells"] = "ok", nil, e.cycles, e.cells
	if !e.ok {
		entry["status"], entry["error"] = "reverted", e.err
	}
	return entry
}

func (b *Block) page() page {
	w, ph := b.w, b.phase
	fires, messages, events, deferred := []any{}, []any{}, []any{}, page{}
	for _, fire := range ph.fires {
		fee := plus(fire.burned, fire.tips)
		fires = append(fires, fire.Ended.page(page{"timer_id": hexText(fire.timer.id), "fee": fee, "tip": fire.perTip}))
	}
	for _, message := range b.messages {
		whose := page{"to": addressText(message.to), "handler": message.handler}
		messages = append(messages, message.Ended.page(whose))
	}
	for _, event := range w.events {
		entry := page{"name": event.name, "actor": addressText(event.actor)}
		for _, field := range event.fields {
			entry[field[0]] = field[1]
			switch field[0] {
			case "needed", "balance", "stated", "clamped":
				entry[field[0]] = json.Number(field[1])
			}
		}
		events = append(events, entry)
	}
	for id, reason := range ph.waits {
		deferred[hexText(id)] = reason
	}
	tiers := map[string]int{"ring": 0, "epoch": 0, "overflow": 0}
	for _, timer := range w.timers {
		tiers[w.tier(timer)]++
	}
	burned := plus(plus(b.burned, ph.bidding.burned), plus(ph.burnedCycle, ph.burnedLane))
	return page{
		"height": w.height, "basefee_cycle": w.basefeeCycle, "basefee_cell": w.basefeeCell,
		"basefee_lane_timer": w.basefeeLane, "p50_tip": w.p50, "gc_cycles": ph.gcCycles, "lane_cycles": ph.cycles,
		"lane_cells": ph.cells, "user_cycles": b.userCycles + b.systemCycles, "user_cells": b.usedCells,
		"receipts_root": hexText(b.receiptsRoot()),
		"cycles":        b.userCycles + b.systemCycles + ph.cycles, "cells": b.usedCells + ph.cells,
		"tips": plus(b.tips, ph.allTips), "burned": burned, "fires": fires, "messages": messages,
		"gba": page{
			"queried": ph.bidding.queried, "spent": ph.bidding.spent, "not_admitted": ph.bidding.notAdmitted,
		},
		"destroyed": orEmpty(ph.ends), "deferred": deferred, "tiers": tiers, "events": events,
	}
}

// page shows a step; a long value is its size and its hash.
func (s Step) page() []any {
	shown := func(value Bytes, is bool) any {
		if !is {
			return nil
		}
		if len(value) > longestInline {
			return fmt.Sprintf("%d:%s", len(value), hexText(tagged("value", value)))
		}
		return hexText(value)
	}
	writes := []any{}
	for _, c := range s.changes {
		writes = append(writes, []any{hexText(c.key), shown(c.before, c.was), shown(c.after, c.is)})
	}
	return []any{s.kind, hexText(s.subject), writes}
}

// final is the state after the last block.
func (c *chain) final() page {
	w, accounts, storage, timers := c.w, page{}, page{}, []any{}
	for key, value := range w.values {
		switch key[0] {
		case 'a':
			balance, nonce := w.account(key[1:])
			if c.given[key[1:]] || balance.Sign() != 0 || nonce != 0 {
				accounts[addressText(key[1:])] = page{"balance": balance, "nonce": nonce}
			}
		case 's', 'S':
			owner, name := addressText(key[1:21]), key[21:]
			if key[0] == 'S' {
				size := (&reader{value}).number(4)
				name, value = value[4:4+size], value[4+size:]
			}
			if storage[owner] == nil {
				storage[owner] = page{}
			}
			storage[owner].(page)[string(name)] = string(value)
		}
	}
	all := []*Timer{}
	for _, timer := range w.timers {
		all = append(all, timer)
	}
	for _, timer := range sortedTimers(all) {
		due := max(timer.trigger, w.height+1)
		timers = append(timers, page{
			"timer_id": hexText(timer.id), "actor": addressText(timer.actor), "trigger_height": timer.trigger,
			"due_height": due, "deferrals": due - timer.trigger, "expires_at": timer.expires,
		})
	}
	burned := new(big.Int)
	for _, place := range []int{burnedByTransactions, burnedByFires, burnedAtLanePrice, burnedByQueries} {
		burned = plus(burned, w.counters[place])
	}
	return page{
		"accounts": accounts, "storage": storage, "timers": timers, "burned": burned, "state_root": hexText(c.tree.root()),
	}
}
