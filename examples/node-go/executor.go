package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

// This file is docs/executor.md: it executes blocks for a validator of a testnet. The tree is left to the validator.

// node is the state after a block, as its changes since the block's parent.
type node struct {
	parent  *node
	changes []Change
}

type executor struct {
	w      *World
	blocks map[uint64]*node
	at     *node // whose state the world is in
}

// serveExecutor answers each request with one frame.
func serveExecutor(in io.Reader, out io.Writer) error {
	requests, e := bufio.NewReader(in), &executor{}
	for {
		var size uint32
		if err := binary.Read(requests, binary.BigEndian, &size); err != nil {
			return nil // the validator has ended
		}
		if size > maxFrame {
			return fmt.Errorf("a frame is too long")
		}
		content := make([]byte, size)
		if _, err := io.ReadFull(requests, content); err != nil {
			return nil
		}
		answer := encode(e.answer(Bytes(content))...)
		frame := append(binary.BigEndian.AppendUint32(nil, uint32(len(answer))), answer...)
		if _, err := out.Write(frame); err != nil {
			return err
		}
	}
}

func (e *executor) answer(content Bytes) (answer []any) {
	defer func() {
		if problem := recover(); problem != nil {
			answer = []any{"failed", fmt.Sprint(problem)}
		}
	}()
	request := decode(content)
	switch request[0] {
	case "open":
		e.open(request[2].([]any), request[3].(uint64))
	case "load":
		for _, entry := range request[1].([]any) {
			pair := entry.([]any)
			e.w.set(pair[0].(Bytes), pair[1].(Bytes), true)
		}
	case "apply":
		return e.apply(request)
	case "build":
		return e.build(request)
	case "commit":
		e.commit(e.blocks[request[1].(uint64)])
	case "roll_back":
		gone := e.blocks[request[1].(uint64)]
		e.keep(func(each *node) bool { return !descends(each, gone) })
	default:
		panic(fmt.Sprintf("the request %v is not known", request[0]))
	}
	return []any{"done"}
}

func (e *executor) open(chain []any, height uint64) {
	policy := chain[1].(string)
	if policy != "cip1" && policy != "fifo" || chain[4] != nil {
		panic(unsupported("policies other than cip1 and fifo"))
	}
	given, err := parseJSON(Bytes(chain[2].(string)), 2)
	if err != nil {
		panic(err)
	}
	p, deployers := defaults(), map[Bytes]bool{}
	p.set(policy, given.(*Object))
	for _, deployer := range chain[3].([]any) {
		deployers[deployer.(Bytes)] = true
	}
	e.w, e.at = newWorld(policy, p, deployers), &node{}
	e.w.height = height
	e.blocks = map[uint64]*node{0: e.at}
}

// --- blocks ----------------------------------------------------------------------------------------------------------

// transactionOf reads a signed transaction, which the validator has checked: `read_transaction` of spec/encoding.py.
func transactionOf(given any) Transaction {
	fields := given.([]any)
	wire := fields[2].(Bytes)
	body := decode(decode(wire)[2].(Bytes))
	return Transaction{
		fields[0].(Bytes), fields[1].(Bytes), body[1].(uint64), body[2].(uint64), body[3].(uint64), amount(body[4]),
		amount(body[5]), amount(body[6]), amount(body[7]), amount(body[8]), body[9].([]any), len(wire),
	}
}

// move takes the world to the state after a block: back to the common ancestor, then forth.
func (e *executor) move(to *node) {
	line := []*node{}
	above := map[*node]bool{}
	for each := to; each != nil; each = each.parent {
		above[each] = true
	}
	for ; !above[e.at]; e.at = e.at.parent {
		for _, c := range e.at.changes {
			e.w.set(c.key, c.before, c.was)
		}
	}
	for each := to; each != e.at; each = each.parent {
		line = append(line, each)
	}
	for i := len(line) - 1; i >= 0; i-- {
		for _, c := range line[i].changes {
			e.w.set(c.key, c.after, c.is)
		}
	}
	e.at = to
}

func (e *executor) begin(request []any) *Block {
	parent := e.blocks[request[1].(uint64)]
	if parent == nil {
		panic("the parent is not known")
	}
	e.move(parent)
	e.w.wantsSteps = len(request) == 7 && request[6] == true
	return e.w.begin(request[3].(uint64), request[4].(Bytes))
}

func (e *executor) apply(request []any) []any {
	b := e.begin(request)
	defer e.w.back(0) // does nothing once the block is finished
	for _, given := range request[5].([]any) {
		if refusal := b.execute(transactionOf(given)); refusal != "" {
			return []any{"refused", refusal, e.steps()}
		}
	}
	return []any{"applied", e.finish(b, request[2].(uint64)), e.steps()}
}

// finish finishes a block, enters it under its number, and returns its result.
func (e *executor) finish(b *Block, number uint64) []any {
	w, ph := b.w, b.phase
	b.finish()
	made := &node{e.at, w.changesSince(0)}
	e.blocks[number], e.at = made, made
	w.journal = nil
	changes := encodedChanges(made.changes)
	return []any{
		w.basefeeCycle, w.basefeeCell, w.basefeeLane, ph.cycles, ph.cells, b.userCycles + b.systemCycles, b.usedCells,
		b.encodedReceipts(), changes, nil, len(ph.waits),
	}
}

func encodedChanges(changes []Change) []any {
	all := []any{}
	for _, c := range changes {
		var after any
		if c.is {
			after = c.after
		}
		all = append(all, []any{c.key, after})
	}
	return all
}

// steps are the steps of the block, if they are wanted.
func (e *executor) steps() any {
	if !e.w.wantsSteps {
		return nil
	}
	all := []any{}
	for _, step := range e.w.steps {
		receipts := []any{}
		for _, receipt := range step.receipts {
			receipts = append(receipts, encode(receipt.([]any)...))
		}
		all = append(all, []any{step.kind, step.subject, encodedChanges(step.changes), receipts})
	}
	return all
}

// build makes a block of the candidates that are admitted, in the order given.
func (e *executor) build(request []any) []any {
	b := e.begin(request)
	defer e.w.back(0) // does nothing once the block is finished
	most, left := int(request[5].(uint64)), int(request[6].(uint64))
	taken, refused, full, isRefused := []any{}, []any{}, map[Bytes]bool{}, map[Bytes]bool{}
	order := []Bytes{}
	for place, given := range request[7].([]any) {
		t := transactionOf(given)
		if len(taken) == most {
			break
		}
		if _, nonce := b.w.account(t.sender); t.nonce < nonce || full[t.sender] {
			continue
		}
		if t.size > left {
			full[t.sender] = true
			continue
		}
		switch b.execute(t) {
		case "":
			taken, left, isRefused[t.sender] = append(taken, place), left-t.size, false
		case "LaneFull":
			full[t.sender] = true
		default:
			if _, known := isRefused[t.sender]; !known {
				isRefused[t.sender] = true
				order = append(order, t.sender)
			}
		}
	}
	for _, sender := range order {
		if isRefused[sender] {
			refused = append(refused, sender)
		}
	}
	return []any{"built", taken, refused, e.finish(b, request[2].(uint64))}
}

// --- branches --------------------------------------------------------------------------------------------------------

// descends says whether a state is another one or above it.
func descends(each, from *node) bool {
	for ; each != nil; each = each.parent {
		if each == from {
			return true
		}
	}
	return false
}

func (e *executor) keep(isKept func(*node) bool) {
	for number, each := range e.blocks {
		if !isKept(each) {
			delete(e.blocks, number)
		}
	}
}

// commit makes a block final: nothing before it can be taken back.
func (e *executor) commit(final *node) {
	e.keep(func(each *node) bool { return descends(each, final) })
	if !descends(e.at, final) {
		e.move(final)
	}
	final.parent, final.changes = nil, nil
}
