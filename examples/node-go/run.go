package main

import (
	"math"
	"math/big"
)

// This file is spec/runs.py, spec/host.py and spec/messages.py.

const (
	messagesPerTransaction = 1_024
	messagesPerDeferredRun = 2
	leastMessageCycles     = 2_000
)

// Event is what a run or the protocol reported.
type Event struct {
	name   string
	actor  Bytes
	fields [][2]string
}

func (e Event) encoded() []any {
	fields := []any{}
	for _, field := range e.fields {
		fields = append(fields, []any{field[0], field[1]})
	}
	return []any{e.name, e.actor, fields}
}

// Run is one run of a handler of an actor, called by a sender. Its effects are encodable.
type Run struct {
	w                     *World
	actor, sender, origin Bytes
	cycleLimit, cellLimit uint64
	cycles, cells         uint64
	allowance             *big.Int // what the transaction's timers may still cost its sender; nil outside of transactions
	messagesLeft          int
	reserved              uint64 // the cycles that it reserved for messages
	movements             []any
	scheduled             []any
	changes               []any
	events                []Event
	messages              []any
}

func (w *World) newRun(actor, sender Bytes, cycles, cells uint64) *Run {
	return &Run{
		w: w, actor: actor, sender: sender, origin: Bytes(make([]byte, 32)), cycleLimit: cycles, cellLimit: cells,
		messagesLeft: messagesPerDeferredRun,
	}
}

// Ended says how a run ended, as receipts have it. The error is empty if it returned.
type Ended struct {
	ok            bool
	err           string
	cycles, cells uint64
	effects       []any
}

func (e Ended) fields() []any { return []any{e.ok, e.err, e.cycles, e.cells} }

// perform performs a run. If it fails, all that it changed is taken back, counters included.
func (r *Run) perform(body func()) (ended Ended) {
	w := r.w
	mark, counters := len(w.journal), w.counters
	defer func() {
		problem := recover()
		if problem == nil {
			return
		}
		failed, ok := problem.(failure)
		if !ok {
			panic(problem)
		}
		w.back(mark)
		w.counters = counters
		r.reserved = 0
		none := []any{[]any{}, []any{}, []any{}, []any{}, []any{}}
		ended = Ended{false, failed.name, r.cycles, r.cells, none}
	}()
	body()
	w.events = append(w.events, r.events...)
	events := []any{}
	for _, event := range r.events {
		events = append(events, event.encoded())
	}
	effects := []any{orEmpty(r.movements), orEmpty(r.scheduled), orEmpty(r.changes), events, orEmpty(r.messages)}
	return Ended{true, "", r.cycles, r.cells, effects}
}

func orEmpty(items []any) []any { return append([]any{}, items...) }

// charge uses up all cycles if they do not suffice; if cells do not suffice, the cycles stay charged.
func (r *Run) charge(cycles, cells uint64) {
	if cycles > r.cycleLimit-r.cycles {
		r.cycles = r.cycleLimit
		panic(failure{"OutOfCycles", false})
	}
	r.cycles += cycles
	if cells > r.cellLimit-r.cells {
		panic(failure{"OutOfCells", false})
	}
	r.cells += cells
}

// chargeAny charges a number of cycles that a script gave.
func (r *Run) chargeAny(cycles *big.Int) {
	if !cycles.IsUint64() {
		cycles = whole(math.MaxUint64)
	}
	r.charge(cycles.Uint64(), 0)
}

func (r *Run) report(name string, fields ...[2]string) {
	r.events = append(r.events, Event{name, r.actor, fields})
}

// move moves an amount, or refuses.
func (r *Run) move(source, target Bytes, moved *big.Int) {
	r.w.debit(source, moved)
	r.w.credit(target, moved)
	if moved.Sign() != 0 {
		r.movements = append(r.movements, []any{source, target, moved})
	}
}

// handle runs a handler of the run's actor: of a script, whose handlers are all alike.
func (r *Run) handle(payload Bytes) {
	r.w.actor(r.actor) // ends where the actor has a program
	r.script(payload)
}

// --- the calls of the host: each is charged first, then checked, then done -------------------------------------------

func (r *Run) get(key string) Bytes {
	r.charge(10, 0)
	value, _ := r.w.get(storageKey(r.actor, key))
	prefix := len(longName(key))
	return value[min(prefix, len(value)):]
}

func (r *Run) store(key string, value Bytes) {
	r.charge(200, uint64(len(key)+len(value)))
	r.w.put(storageKey(r.actor, key), longName(key)+value)
}

func (r *Run) remove(key string) {
	r.charge(200, 0)
	r.w.drop(storageKey(r.actor, key))
}

// allowWatching is refused: neither cip1 nor fifo has timers that watch keys (spec/watches.py).
func (r *Run) allowWatching(key string) {
	r.charge(200, uint64(len(key)))
	refuseIf(true, "WatchUnavailable")
}

func (r *Run) emit(name, data string) {
	r.charge(50, uint64(len(data)))
	refuseIf(name != "" && !isName(name), "EventNameTooLong")
	r.report(name, [2]string{"data", data})
}

func (r *Run) transfer(to Bytes, moved *big.Int) {
	r.charge(200, 0)
	r.move(r.actor, to, moved)
}

func (r *Run) cancel(id Bytes) {
	r.charge(500, 0)
	r.w.removeTimer(r.ownTimer(id))
	r.changes = append(r.changes, []any{"cancelled", id})
}

func (r *Run) extend(id Bytes, expires *big.Int) {
	r.charge(500, 0)
	r.changes = append(r.changes, []any{"extended", id, r.w.extend(r.ownTimer(id), expires)})
}

// Message is the record of a message that waits.
type Message struct {
	to, sender    Bytes
	handler       string
	payload       Bytes
	cycles, cells uint64
	origin        Bytes
}

func messageKey(number uint64) Bytes { return "m" + number8(number) }

// send queues a message; cycles and cells that are nil are the most.
func (r *Run) send(to Bytes, handler string, payload Bytes, cycles, cells *big.Int) {
	w, size := r.w, uint64(len(payload))
	r.charge(80, 0)
	mostCycles, mostCells := w.p.amount("MESSAGE_CYCLES"), w.p.amount("MESSAGE_CELLS")
	if cycles == nil {
		cycles = mostCycles
	}
	if cells == nil {
		cells = mostCells
	}
	isTooSmall := cycles.Cmp(whole(leastMessageCycles)) < 0 || cells.Sign() < 0
	if isTooSmall || cycles.Cmp(mostCycles) > 0 || cells.Cmp(mostCells) > 0 {
		r.charge(0, size)
		refuseIf(true, "MessageLimitInvalid")
	}
	m := Message{to, r.actor, handler, payload, cycles.Uint64(), cells.Uint64(), r.origin}
	r.charge(m.cycles, size+m.cells)
	refuseIf(r.messagesLeft == 0, "TooManyMessages")
	refuseIf(handler != "" && !isName(handler), "MessageHandlerInvalid")
	receiver, isActor := w.actor(to)
	refuseIf(!isActor, "UnknownActor")
	refuseIf(receiver.mailbox+size > w.p.number("MAILBOX_BYTES"), "MailboxFull")
	receiver.mailbox += size
	w.setActor(to, receiver)
	fields := []any{m.to, m.sender, m.handler, m.payload, m.cycles, m.cells}
	if m.origin != Bytes(make([]byte, 32)) {
		fields = append(fields, m.origin)
	}
	w.put(messageKey(w.count(nextMessage)), encode(fields...))
	r.messages = append(r.messages, []any{to, handler, m.cycles, m.cells})
	r.messagesLeft--
	r.reserved += m.cycles
}

// firstWaiting returns the first message of the queue.
func (w *World) firstWaiting() Message {
	record, _ := w.get(messageKey(w.counters[firstMessage].Uint64()))
	f := decode(record)
	m := Message{
		f[0].(Bytes), f[1].(Bytes), f[2].(string), f[3].(Bytes), f[4].(uint64), f[5].(uint64), Bytes(make([]byte, 32)),
	}
	if len(f) > 6 {
		m.origin = f[6].(Bytes)
	}
	return m
}

// take takes the first message from the queue, and from its receiver's mailbox.
func (w *World) take() Message {
	m := w.firstWaiting()
	w.drop(messageKey(w.count(firstMessage)))
	receiver, _ := w.actor(m.to)
	receiver.mailbox -= uint64(len(m.payload))
	w.setActor(m.to, receiver)
	return m
}
