package main

import (
	"math/big"
	"sort"
)

// This file is spec/agents.py for builtin:fixed, the one agent that is no program.

const leastQueryCycles = 100

// bid is a max fee and a priority. One that is nil is open.
type bid struct{ maxFee, priority *big.Int }

// Bidding is the queries of one block, and what timers bid after them.
type Bidding struct {
	w           *World
	receipts    []any
	queried     int
	spent       uint64
	notAdmitted int
	burned      *big.Int
	results     map[Bytes]*bid // what came of each query; nil for the default agent
}

// memory is the record of an actor's queries: when it was asked, and could not pay, and its agent's last answer.
type memory struct {
	at, unpaidAt, since uint64
	last                bid
}

func (w *World) memory(actor Bytes) memory {
	record, ok := w.get("b" + actor)
	if !ok {
		return memory{}
	}
	f := decode(record)
	return memory{f[0].(uint64), f[1].(uint64), f[2].(uint64), bid{amount(f[3]), amount(f[4])}}
}

func (w *World) setMemory(actor Bytes, m memory) {
	w.put("b"+actor, encode(m.at, m.unpaidAt, m.since, m.last.maxFee, m.last.priority))
}

// agentOf is what builtin:fixed bids for an actor, or nil.
func (w *World) agentOf(actor Bytes) *bid {
	found, _ := w.actor(actor)
	if found.agent == nil {
		return nil
	}
	fields := found.agent.([]any)
	if fields[0] != "builtin:fixed" {
		panic(unsupported("agents that are programs"))
	}
	return &bid{amount(fields[1]), amount(fields[2])}
}

type candidate struct {
	timer    *Timer
	rank, at uint64
	fixed    bid
}

// run asks about the due timers, as far as the budget reaches.
func (b *Bidding) run(due []*Timer) {
	w, unpaid := b.w, map[Bytes]bool{}
	most, budget := w.p.number("GBA_MAX_CYCLES"), w.p.number("GBA_BUDGET_CYCLES")
	for _, each := range b.candidates(due) {
		actor := each.timer.actor
		switch {
		case b.spent+most > budget || unpaid[actor]:
			b.notAdmitted++
		case w.balance(actor).Cmp(times(most, w.basefeeCycle)) < 0:
			unpaid[actor] = true
			b.spent += leastQueryCycles
			m := w.memory(actor)
			m.at, m.unpaidAt = w.height, w.height
			w.setMemory(actor, m)
			b.note(each.timer, "unpaid", 0, nil)
			reported := [][2]string{{"timer_id", hexText(each.timer.id)}, {"reason", "unpaid"}}
			w.events = append(w.events, Event{"GbaFallback", actor, reported})
		default:
			w.debit(actor, times(leastQueryCycles, w.basefeeCycle))
			b.spent += leastQueryCycles
			m := w.memory(actor)
			m.at, m.last = w.height, each.fixed
			if m.since == 0 {
				m.since = w.height
			}
			w.setMemory(actor, m)
			b.note(each.timer, "ok", leastQueryCycles, &each.fixed)
		}
	}
}

// candidates returns the timers about which agents may be asked, in the order of asking.
func (b *Bidding) candidates(due []*Timer) []candidate {
	w, ranks, found := b.w, map[Bytes]uint64{}, []candidate{}
	for _, timer := range due {
		isOpen := timer.maxFee == nil || timer.priority == nil
		isHopeless := timer.maxFee != nil && timer.maxFee.Cmp(w.price) < 0
		if !isOpen || isHopeless || w.height > timer.expires || w.isOverCap(timer) {
			continue
		}
		agent, m := w.agentOf(timer.actor), w.memory(timer.actor)
		isPaused := m.unpaidAt > 0 && w.height-m.unpaidAt <= w.p.number("GBA_UNPAID_PAUSE")
		if agent == nil || isPaused {
			continue
		}
		rank := ranks[timer.actor]
		ranks[timer.actor]++
		if rank < w.p.number("GBA_QUERIES_PER_ACTOR") {
			found = append(found, candidate{timer: timer, rank: rank, at: m.at, fixed: *agent})
		}
	}
	sort.Slice(found, func(i, j int) bool {
		a, b := found[i], found[j]
		if a.rank != b.rank {
			return a.rank < b.rank
		}
		if a.at != b.at {
			return a.at < b.at
		}
		return a.timer.id < b.timer.id
	})
	return found
}

func (b *Bidding) note(timer *Timer, outcome string, cycles uint64, answer *bid) {
	burned := times(cycles, b.w.basefeeCycle)
	b.burned = plus(b.burned, burned)
	b.results[timer.id] = answer
	b.queried++
	var shown any
	if answer != nil {
		shown = []any{answer.maxFee, answer.priority}
	}
	b.receipts = append(b.receipts, []any{timer.id, timer.actor, outcome, cycles, burned, shown})
	b.w.step("query", timer.id, true, b.receipts[len(b.receipts)-1])
}

// prices returns the bid of each due timer: its own, else its agent's, else the default agent's.
func (b *Bidding) prices(due []*Timer) map[Bytes]bid {
	w, found := b.w, map[Bytes]bid{}
	supplied, usual := w.defaultBid()
	for _, timer := range due {
		m := w.memory(timer.actor)
		given := m.last
		if result, isAsked := b.results[timer.id]; isAsked && result != nil {
			given = *result
		} else if isAsked {
			given = bid{}
		}
		price := bid{timer.maxFee, timer.priority}
		if price.maxFee == nil {
			price.maxFee = given.maxFee
		}
		if price.priority == nil {
			price.priority = given.priority
		}
		if price.maxFee == nil {
			price.maxFee = w.supply(timer, supplied, m)
		}
		if price.priority == nil {
			price.priority = usual
		}
		found[timer.id] = price
	}
	return found
}

// defaultBid is the default agent's max fee and priority in this block.
func (w *World) defaultBid() (maxFee, priority *big.Int) {
	priority = w.p50
	if share := w.p.amount("DEFAULT_TIP_CAP"); share.Sign() != 0 {
		priority = least(priority, new(big.Int).Div(w.price, share))
	}
	return least(times(2, w.price), minus(priceLimit, whole(1))), priority
}

// firstPricing is the block that prices a timer first: that of its height, or the first one of the auction.
func (w *World) firstPricing(timer *Timer) uint64 {
	return max(timer.trigger, w.genesis.number("ACTIVATION_HEIGHT")+1)
}

// isInTurn says whether a timer's max fee is in the record of the block that priced it first.
func (w *World) isInTurn(timer *Timer, m memory) bool {
	first := w.firstPricing(timer)
	isKept := m.since != 0 && m.since <= first
	return timer.maxFee == nil && timer.defaultFee == nil && !isKept && first <= w.height
}

// supply returns the default agent's max fee of a timer, which stays what it was in the first block that priced it.
func (w *World) supply(timer *Timer, supplied *big.Int, m memory) *big.Int {
	first := w.firstPricing(timer)
	switch {
	case timer.defaultFee != nil:
		return timer.defaultFee
	case w.isInTurn(timer, m) && first == w.height:
		w.put("p"+number8(first), Bytes(supplied.Bytes()))
		return supplied
	case w.isInTurn(timer, m):
		record, _ := w.get("p" + number8(first))
		return new(big.Int).SetBytes([]byte(record))
	}
	priced := *timer
	priced.defaultFee = supplied
	w.keepTimer(&priced)
	return supplied
}

// dropSupplies removes the records of supplies on which no timer depends any more.
func (w *World) dropSupplies() {
	for height := range w.supplies {
		if !w.isNeeded(height) {
			w.drop("p" + number8(height))
		}
	}
}

func (w *World) isNeeded(height uint64) bool {
	for trigger, timers := range w.due {
		if max(trigger, w.genesis.number("ACTIVATION_HEIGHT")+1) != height {
			continue
		}
		for _, timer := range timers {
			if w.isInTurn(timer, w.memory(timer.actor)) {
				return true
			}
		}
	}
	return false
}
