package main

import (
	"math/big"
	"slices"
	"sort"
)

// This file is spec/world.py and spec/leaves.py. The state is one map of records under their keys, as the state tree has
// it ("State" of docs/protocol.md). Each change is noted with the value before, so that a failing run and a block of
// another branch can be taken back.

// Places of the counters in the record "g".
const (
	nextSequence = iota
	nextMessage
	firstMessage
	basefeeOfCycle
	basefeeOfCell
	basefeeOfLane
	medianTip
	lastCycles
	liveTimers
	minted
	burnedByTransactions
	burnedByFires
	burnedAtLanePrice
	burnedByQueries
	counterCount
)

const (
	parametersAddress = Bytes("\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x09")
	runnerContract    = Bytes("\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x0a")
	scriptCode        = "builtin:script"
	defaultHandler    = "handle_timer"
	longestPlainKey   = 256
	longestInline     = 1_024
)

// A failure ends a run, which takes its changes back. A script's "try" catches it if it is a refusal.
type failure struct {
	name      string
	isRefusal bool
}

// unsupported says what this program does not do; it ends the case, or the executor.
type unsupported string

func refuseIf(condition bool, name string) {
	if condition {
		panic(failure{name, true})
	}
}

type note struct {
	key    Bytes
	before Bytes
	was    bool // whether the key had a value
}

// Change is the net change of a key by a block.
type Change struct {
	note
	after Bytes
	is    bool
}

// World is the state, and the frozen figures of the block that runs.
type World struct {
	policy    string
	genesis   Parameters
	deployers map[Bytes]bool

	values  map[Bytes]Bytes
	journal []note

	// What follows from the state.
	timers   map[Bytes]*Timer
	due      map[uint64]map[Bytes]*Timer // the timers by trigger height
	supplies map[uint64]bool             // the heights of the records under "p"
	recent   map[Bytes]uint64            // the fires in the fairness window, by actor
	windows  map[uint64]bool             // the heights of the records under "f"

	// The block.
	height                                        uint64
	p                                             Parameters
	isAuction                                     bool
	counters                                      [counterCount]*big.Int // none is ever changed in place
	basefeeCycle, basefeeCell, basefeeLane, price *big.Int               // price: of the lane
	p50                                           *big.Int
	events                                        []Event
	steps                                         []Step
	wantsSteps                                    bool
	stepMark                                      int
}

func newWorld(policy string, genesis Parameters, deployers map[Bytes]bool) *World {
	return &World{
		policy: policy, genesis: genesis, deployers: deployers, values: map[Bytes]Bytes{},
		timers: map[Bytes]*Timer{}, due: map[uint64]map[Bytes]*Timer{}, supplies: map[uint64]bool{},
		recent: map[Bytes]uint64{}, windows: map[uint64]bool{},
	}
}

// --- changes ---------------------------------------------------------------------------------------------------------

func (w *World) get(key Bytes) (Bytes, bool) {
	value, ok := w.values[key]
	return value, ok
}

func (w *World) put(key, value Bytes) {
	before, was := w.values[key]
	if was && before == value {
		return
	}
	w.journal = append(w.journal, note{key, before, was})
	w.set(key, value, true)
}

// drop removes a record, which need not be there.
func (w *World) drop(key Bytes) {
	if before, was := w.values[key]; was {
		w.journal = append(w.journal, note{key, before, true})
		w.set(key, "", false)
	}
}

// set changes the map, and what follows from the state.
func (w *World) set(key, value Bytes, is bool) {
	before, was := w.values[key]
	if is {
		w.values[key] = value
	} else {
		delete(w.values, key)
	}
	switch rest := key[1:]; key[0] {
	case 't':
		if timer := w.timers[rest]; was {
			delete(w.timers, rest)
			delete(w.due[timer.trigger], rest)
			if len(w.due[timer.trigger]) == 0 {
				delete(w.due, timer.trigger)
			}
		}
		if is {
			timer := decodeTimer(rest, value)
			w.timers[rest] = timer
			if w.due[timer.trigger] == nil {
				w.due[timer.trigger] = map[Bytes]*Timer{}
			}
			w.due[timer.trigger][rest] = timer
		}
	case 'p':
		follow(w.supplies, rest, is)
	case 'f':
		follow(w.windows, rest, is)
		w.countWindow(before, was, ^uint64(0))
		w.countWindow(value, is, 1)
	}
}

func follow(heights map[uint64]bool, key Bytes, is bool) {
	height := (&reader{key}).number(8)
	if is {
		heights[height] = true
	} else {
		delete(heights, height)
	}
}

// countWindow adds the fires of a record under "f", times a factor of 1 or -1.
func (w *World) countWindow(record Bytes, is bool, factor uint64) {
	if !is {
		return
	}
	for _, entry := range decode(record)[0].([]any) {
		pair := entry.([]any)
		actor := pair[0].(Bytes)
		w.recent[actor] += factor * pair[1].(uint64)
		if w.recent[actor] == 0 {
			delete(w.recent, actor)
		}
	}
}

// back takes all changes since a place in the journal back.
func (w *World) back(mark int) {
	for len(w.journal) > mark {
		last := w.journal[len(w.journal)-1]
		w.journal = w.journal[:len(w.journal)-1]
		w.set(last.key, last.before, last.was)
	}
}

// changesSince returns the net changes since a place in the journal, by ascending keys.
func (w *World) changesSince(mark int) []Change {
	first := map[Bytes]note{}
	for _, each := range w.journal[mark:] {
		if _, known := first[each.key]; !known {
			first[each.key] = each
		}
	}
	changes := []Change{}
	for key, before := range first {
		after, is := w.values[key]
		if is != before.was || after != before.before {
			changes = append(changes, Change{before, after, is})
		}
	}
	sort.Slice(changes, func(i, j int) bool { return changes[i].key < changes[j].key })
	return changes
}

// count changes a counter by one; returns its value before.
func (w *World) count(name int) uint64 {
	before := w.counters[name]
	w.counters[name] = plus(before, whole(1))
	return before.Uint64()
}

// loadCounters reads the record "g", and keepCounters writes it.
func (w *World) loadCounters() {
	record, _ := w.get("g")
	for i, value := range decode(record) {
		w.counters[i] = amount(value)
	}
}

func (w *World) keepCounters() {
	fields := make([]any, counterCount)
	for i, value := range w.counters {
		fields[i] = value
	}
	w.put("g", encode(fields...))
}

// --- steps -----------------------------------------------------------------------------------------------------------

// Step is a part of a block, with what it changed ("Steps" of docs/executor.md).
type Step struct {
	kind     string
	subject  Bytes
	changes  []Change
	receipts []any
}

// step ends a step, which made all changes since the last one. If it made none, it is left out, unless it is always told.
func (w *World) step(kind string, subject Bytes, always bool, receipts ...any) {
	if !w.wantsSteps {
		return
	}
	w.keepCounters()
	changes := w.changesSince(w.stepMark)
	w.stepMark = len(w.journal)
	if always || len(changes) > 0 {
		w.steps = append(w.steps, Step{kind, subject, changes, receipts})
	}
}

// --- accounts and actors ---------------------------------------------------------------------------------------------

func (w *World) account(address Bytes) (balance *big.Int, nonce uint64) {
	record, ok := w.get("a" + address)
	if !ok {
		return new(big.Int), 0
	}
	fields := decode(record)
	return amount(fields[0]), fields[1].(uint64)
}

func (w *World) balance(address Bytes) *big.Int {
	balance, _ := w.account(address)
	return balance
}

func (w *World) setAccount(address Bytes, balance *big.Int, nonce uint64) {
	w.put("a"+address, encode(balance, nonce))
}

// credit gives an amount. Receiving nothing makes no account.
func (w *World) credit(address Bytes, given *big.Int) {
	if given.Sign() != 0 {
		balance, nonce := w.account(address)
		w.setAccount(address, plus(balance, given), nonce)
	}
}

// debit takes an amount, or refuses.
func (w *World) debit(address Bytes, taken *big.Int) {
	balance, nonce := w.account(address)
	refuseIf(balance.Cmp(taken) < 0, "InsufficientBalance")
	if taken.Sign() != 0 {
		w.setAccount(address, minus(balance, taken), nonce)
	}
}

// Actor is the record of an actor. Its agent is null, or code, max fee and priority of builtin:fixed.
type Actor struct {
	code                   string
	deployer               Bytes
	nonce, timers, mailbox uint64
	agent                  any
}

func (w *World) actor(address Bytes) (Actor, bool) {
	record, ok := w.get("c" + address)
	if !ok {
		return Actor{}, false
	}
	f := decode(record)
	if f[0] != scriptCode || len(f) > 6 {
		panic(unsupported("actors with a program"))
	}
	return Actor{f[0].(string), f[1].(Bytes), f[2].(uint64), f[3].(uint64), f[4].(uint64), f[5]}, true
}

func (w *World) setActor(address Bytes, a Actor) {
	w.put("c"+address, encode(a.code, a.deployer, a.nonce, a.timers, a.mailbox, a.agent))
}

// storageKey is the key of a storage value, and longName what precedes a value whose name only has its hash there.
func storageKey(actor Bytes, name string) Bytes {
	if len(name) <= longestPlainKey {
		return "s" + actor + Bytes(name)
	}
	return "S" + actor + tagged("storage key", Bytes(name))
}

func longName(name string) Bytes {
	if len(name) <= longestPlainKey {
		return ""
	}
	return number8(uint64(len(name)))[4:] + Bytes(name)
}

func isReserved(address Bytes) bool {
	return address[:19] == parametersAddress[:19] && address[19] < 16
}

// --- timers ----------------------------------------------------------------------------------------------------------

// Timer is the record of a live timer. It is never changed in place.
type Timer struct {
	id, actor         Bytes
	trigger, sequence uint64
	handler           string
	payload           Bytes // empty if it is long, and then stored apart
	isLong            bool
	payer             Bytes
	gas               *uint64 // nil, as in the next four: open
	expires           uint64
	maxFee            *big.Int
	priority          *big.Int
	cap               *big.Int
	defaultFee        *big.Int // what the default agent supplied out of turn
	scheduled         uint64
}

func decodeTimer(id, record Bytes) *Timer {
	f := decode(record)
	if len(f) > 13 {
		panic(unsupported("timers that name an agent, lock a bid or watch a key"))
	}
	t := &Timer{
		id: id, actor: f[0].(Bytes), trigger: f[1].(uint64), sequence: f[2].(uint64), handler: defaultHandler,
		isLong: f[4] == nil, payer: f[0].(Bytes), gas: maybe(f[6]), expires: f[7].(uint64), maxFee: amount(f[8]),
		priority: amount(f[9]), cap: amount(f[10]), defaultFee: amount(f[11]), scheduled: f[12].(uint64),
	}
	if f[3] != nil {
		t.handler = f[3].(string)
	}
	if !t.isLong {
		t.payload = f[4].(Bytes)
	}
	if f[5] != nil {
		t.payer = f[5].(Bytes)
	}
	return t
}

// keepTimer writes a timer's record; the payload of a new one is kept apart if it is long.
func (w *World) keepTimer(t *Timer) {
	var handler, payload, payer any
	if t.handler != defaultHandler {
		handler = t.handler
	}
	if !t.isLong {
		payload = t.payload
	}
	if t.payer != t.actor {
		payer = t.payer
	}
	w.put("t"+t.id, encode(t.actor, t.trigger, t.sequence, handler, payload, payer, t.gas, t.expires, t.maxFee,
		t.priority, t.cap, t.defaultFee, t.scheduled))
}

func (w *World) removeTimer(t *Timer) {
	w.drop("t" + t.id)
	w.drop("T" + t.id)
	actor, _ := w.actor(t.actor)
	actor.timers--
	w.setActor(t.actor, actor)
	w.counters[liveTimers] = minus(w.counters[liveTimers], whole(1))
}

// isOlder orders timers by trigger height and sequence.
func isOlder(a, b *Timer) bool {
	return a.trigger < b.trigger || a.trigger == b.trigger && a.sequence < b.sequence
}

// sortedTimers returns timers by age.
func sortedTimers(found []*Timer) []*Timer {
	sort.Slice(found, func(i, j int) bool { return isOlder(found[i], found[j]) })
	return found
}

func (w *World) dueTimers() []*Timer {
	found := []*Timer{}
	for height, timers := range w.due {
		if height <= w.height {
			for _, timer := range timers {
				found = append(found, timer)
			}
		}
	}
	return sortedTimers(found)
}

// tier says where a timer waits after the block: in the ring, the epoch queue or the overflow tree.
func (w *World) tier(t *Timer) string {
	length := w.genesis.number("EPOCH_LENGTH")
	epoch, now := t.trigger/length, w.height/length
	switch {
	case t.trigger <= w.height+1 || epoch <= now || t.trigger < t.scheduled+w.genesis.number("RING_BUFFER_SIZE"):
		return "ring"
	case epoch <= now+w.genesis.number("EPOCH_HORIZON"):
		return "epoch"
	}
	return "overflow"
}

// keepOverflow writes the root of the overflow tree, a radix tree by trigger height and sequence.
func (w *World) keepOverflow() {
	far := []*Timer{}
	length := w.genesis.number("EPOCH_LENGTH")
	for height, timers := range w.due {
		if height/length <= w.height/length+w.genesis.number("EPOCH_HORIZON") {
			continue
		}
		for _, timer := range timers {
			if w.tier(timer) == "overflow" {
				far = append(far, timer)
			}
		}
	}
	if len(far) == 0 {
		w.drop("o")
	} else {
		w.put("o", overflowTree(sortedTimers(far), 0))
	}
}

// overflowTree is the hash of a tree of timers by age, whose keys agree in all bits before this one.
func overflowTree(timers []*Timer, bit int) Bytes {
	key := func(t *Timer) Bytes { return number8(t.trigger) + number8(t.sequence) }
	if len(timers) == 1 {
		return blake3("stampede/overflow/leaf" + key(timers[0]) + timers[0].id)
	}
	isSet := func(t *Timer) bool { return key(t)[bit/8]>>(7-bit%8)&1 == 1 }
	for isSet(timers[0]) == isSet(timers[len(timers)-1]) {
		bit++
	}
	split := slices.IndexFunc(timers, isSet)
	children := overflowTree(timers[:split], bit+1) + overflowTree(timers[split:], bit+1)
	return blake3("stampede/overflow/branch" + Bytes([]byte{byte(bit)}) + children)
}
