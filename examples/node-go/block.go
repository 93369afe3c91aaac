package main

import (
	"math/big"
	"slices"
)

// This file is spec/block.py: how a block is processed, admission and fees. Read it first.

const cycleSlope = 8

// Transaction is the signed body of a transaction, its sender and its hash.
type Transaction struct {
	hash, sender                                        Bytes
	nonce, gas, cells                                   uint64
	maxFee, maxPriority, maxCellFee, value, timerBudget *big.Int
	action                                              []any // as in its encoding
	size                                                int
}

// Receipt is the receipt of a transaction.
type Receipt struct {
	hash, sender Bytes
	Ended
	burned, tips *big.Int
	created      Bytes
}

func (r Receipt) fields() []any {
	whose := []any{r.hash, r.sender}
	return slices.Concat(whose, r.Ended.fields(), []any{r.burned, r.tips, r.effects, r.created})
}

// Sent is the receipt of a message that ran.
type Sent struct {
	Message
	Ended
}

func (s Sent) fields() []any {
	return slices.Concat([]any{s.to, s.sender, s.handler}, s.Ended.fields(), []any{s.effects})
}

// Block is a block that is being processed.
type Block struct {
	w                                                 *World
	proposer                                          Bytes
	phase                                             *Phase
	receipts                                          []Receipt
	messages                                          []Sent
	userCycles, systemCycles, usedCells, deferredUsed uint64
	burned, tips                                      *big.Int
}

// begin is step 1: it freezes parameters and prices for the block.
func (w *World) begin(height uint64, proposer Bytes) *Block {
	w.journal, w.events, w.steps, w.stepMark = nil, nil, nil, 0
	w.height, w.p = height, w.parametersInForce()
	w.isAuction = w.policy == "cip1" && height > w.genesis.number("ACTIVATION_HEIGHT")
	w.loadCounters()
	w.basefeeCycle, w.basefeeCell = w.counters[basefeeOfCycle], w.counters[basefeeOfCell]
	w.basefeeLane, w.p50 = w.counters[basefeeOfLane], w.counters[medianTip]
	w.price = new(big.Int)
	if w.isAuction {
		w.price = times(w.p.number("LANE_FEE_MULTIPLIER_MILLI"), w.basefeeLane)
		w.price.Div(w.price, whole(1_000))
		w.beginWindow()
	}
	w.step("start", "", true)
	return &Block{w: w, proposer: proposer, phase: w.newPhase(), burned: new(big.Int), tips: new(big.Int)}
}

// execute is step 3: it admits, charges, runs and settles a transaction. It returns the name of the error if the
// transaction is not admitted, and then changes nothing.
func (b *Block) execute(t Transaction) string {
	w := b.w
	tip, refusal := b.admit(t)
	if refusal != "" {
		w.step("transaction", t.hash, true)
		return refusal
	}
	upfront := plus(times(t.gas, plus(w.basefeeCycle, tip)), times(t.cells, w.basefeeCell))
	balance, nonce := w.account(t.sender)
	w.setAccount(t.sender, balance, nonce+1)
	w.debit(t.sender, upfront)
	run, target := w.newRun("", t.sender, t.gas, t.cells), Bytes("")
	run.allowance, run.messagesLeft, run.origin = t.timerBudget, messagesPerTransaction, t.hash
	ended := run.perform(func() { target = run.act(t) })
	burned := plus(times(run.cycles, w.basefeeCycle), times(run.cells, w.basefeeCell))
	tips := times(run.cycles, tip)
	w.credit(t.sender, minus(upfront, plus(burned, tips)))
	if t.action[0] == "system" {
		b.systemCycles += run.cycles
	} else {
		b.userCycles += run.cycles
	}
	b.usedCells += run.cells
	b.burned, b.tips = plus(b.burned, burned), plus(b.tips, tips)
	receipt := Receipt{t.hash, t.sender, ended, burned, tips, ""}
	if ended.ok {
		receipt.created = target
	}
	b.receipts = append(b.receipts, receipt)
	w.step("transaction", t.hash, true, receipt.fields())
	return ""
}

// admit returns the tip a cycle of an admissible transaction, or the first error that applies.
func (b *Block) admit(t Transaction) (tip *big.Int, refusal string) {
	w, p := b.w, b.w.p
	balance, nonce := w.account(t.sender)
	used, limit := b.userCycles, p.number("LANE_USER_CYCLES")
	if t.action[0] == "system" {
		used, limit = b.systemCycles, p.number("LANE_SYSTEM_CYCLES")
	}
	room := minus(t.maxFee, w.basefeeCycle)
	tip = least(t.maxPriority, room)
	upfront := plus(times(t.gas, plus(w.basefeeCycle, tip)), times(t.cells, w.basefeeCell))
	switch {
	case t.nonce != nonce:
		return nil, "BadNonce"
	case room.Sign() < 0 || t.maxCellFee.Cmp(w.basefeeCell) < 0:
		return nil, "FeeTooLow"
	case t.gas < p.number("TX_BASE_CYCLES"):
		return nil, "GasTooLow"
	case t.gas > limit-used || t.cells > p.number("LANE_USER_CELLS")-b.usedCells:
		return nil, "LaneFull"
	case balance.Cmp(plus(t.value, upfront)) < 0:
		return nil, "InsufficientFunds"
	}
	return tip, ""
}

// act is the action of a transaction; it returns the address of the actor that it deployed, if any.
func (r *Run) act(t Transaction) Bytes {
	w := r.w
	r.charge(w.p.number("TX_BASE_CYCLES"), 0)
	switch t.action[0] {
	case "system":
		r.instruct(t.action[1].([]any))
	case "transfer":
		r.move(t.sender, t.action[1].(Bytes), t.value)
	case "deploy":
		code, created := t.action[1].(string), keccak(t.sender, number8(t.nonce))[12:]
		if code != scriptCode {
			panic(unsupported("the deployment of a program"))
		}
		r.charge(0, uint64(len(code)))
		r.move(t.sender, created, t.value)
		_, isTaken := w.actor(created)
		if isTaken {
			panic(failure{"ActorExists", false})
		}
		w.setActor(created, Actor{code: code, deployer: t.sender})
		return created
	case "call":
		payload := t.action[3].(Bytes)
		r.actor = t.action[1].(Bytes)
		r.charge(0, uint64(len(payload)))
		r.move(t.sender, r.actor, t.value)
		if r.actor == runnerContract {
			r.callRunners(t.action[2].(string))
			return ""
		}
		_, isActor := w.actor(r.actor)
		refuseIf(!isActor, "UnknownActor")
		r.handle(payload)
	}
	return ""
}

// callRunners is a call of the runner contract (spec/jobs.py) on a chain without runners.
func (r *Run) callRunners(handler string) {
	cycles := map[string]uint64{"submit_result": 1_000, "register_runner": 500, "unregister_runner": 500}[handler]
	refuseIf(cycles == 0, "UnknownHandler")
	r.charge(cycles, 0)
	_, isRunner := r.w.get("w" + r.sender)
	refuseIf(handler == "submit_result" && !isRunner, "NotRunner")
	refuseIf(handler != "submit_result" && !r.w.deployers[r.sender], "NotSystemDeployer")
	panic(unsupported("jobs and runners"))
}

// finish is all steps after the last transaction: timers, messages, and the prices of the next block.
func (b *Block) finish() {
	w, ph, p := b.w, b.phase, b.w.p
	if _, hasJobs := w.get("n"); hasJobs {
		panic(unsupported("jobs"))
	}
	w.credit(b.proposer, b.tips)
	w.step("transaction tips", "", false)
	ph.run()
	w.credit(b.proposer, ph.allTips)
	w.step("fire tips", "", false)
	b.runMessages()
	ph.countFires()
	w.step("fairness counters", "", false)
	w.keepOverflow()
	w.step("calendar", "", false)
	w.dropSupplies()
	w.step("supplies", "", false)
	cycles := b.userCycles + b.systemCycles + ph.cycles
	next := &w.counters
	next[basefeeOfCycle] = w.nextBasefee(w.basefeeCycle, cycles, p.number("BLOCK_CYCLES_TARGET"), cycleSlope)
	next[basefeeOfCell] = w.nextBasefee(w.basefeeCell, b.usedCells+ph.cells, p.number("BLOCK_CELLS_TARGET"), cycleSlope)
	next[basefeeOfLane] = next[basefeeOfCycle]
	if w.isAuction {
		target := p.number("LANE_TIMER_CYCLES") / 2
		next[basefeeOfLane] = w.nextBasefee(w.basefeeLane, ph.cycles, target, p.number("LANE_BASEFEE_SLOPE"))
	}
	next[medianTip], next[lastCycles] = ph.medianTip(), whole(cycles)
	for place, burned := range map[int]*big.Int{
		burnedByTransactions: b.burned, burnedByFires: ph.burnedCycle,
		burnedAtLanePrice: ph.burnedLane, burnedByQueries: ph.bidding.burned,
	} {
		next[place] = plus(next[place], burned)
	}
	w.keepCounters()
	w.step("prices and counters", "", true)
}

// runMessages is step 5: the messages that wait now, in the order of sending, while the lane has room.
func (b *Block) runMessages() {
	w, limit := b.w, b.w.p.number("LANE_DEFERRED_CYCLES")
	for end := w.counters[nextMessage]; w.counters[firstMessage].Cmp(end) < 0; {
		if b.deferredUsed+w.firstWaiting().cycles > limit {
			return
		}
		m := w.take()
		run := w.newRun(m.to, m.sender, m.cycles, m.cells)
		run.origin = m.origin
		ended := run.perform(func() {
			run.charge(w.p.number("MESSAGE_BASE_CYCLES"), 0)
			run.handle(m.payload)
		})
		b.deferredUsed += ended.cycles - run.reserved
		b.messages = append(b.messages, Sent{m, ended})
		w.step("message", m.to, true, b.messages[len(b.messages)-1].fields())
	}
}

// lists are the block's receipts, by kind.
func (b *Block) lists() []any {
	ph := b.phase
	return []any{
		listed(b.receipts), listed(ph.fires), orEmpty(ph.destroyed), orEmpty(ph.bidding.receipts), listed(b.messages),
	}
}

// encodedReceipts is the encoding of the block's receipts.
func (b *Block) encodedReceipts() Bytes {
	end := []any{b.phase.gcCycles, b.w.p50}
	return encode(slices.Concat([]any{b.w.height, b.proposer}, b.lists(), end)...)
}

// receiptsRoot is the root over a summary, then each receipt, list after list (spec/encoding.py).
func (b *Block) receiptsRoot() Bytes {
	summary, contents := []any{b.w.height, b.proposer, b.phase.gcCycles, b.w.p50}, []Bytes{""}
	for _, list := range b.lists() {
		summary = append(summary, len(list.([]any)))
		for _, receipt := range list.([]any) {
			contents = append(contents, encode(receipt.([]any)...))
		}
	}
	contents[0] = encode(summary...)
	return merkleRoot("receipts", contents)
}

func listed[T interface{ fields() []any }](receipts []T) []any {
	all := []any{}
	for _, receipt := range receipts {
		all = append(all, receipt.fields())
	}
	return all
}
