package main

import (
	"math/big"
	"slices"
	"sort"
)

// This file is spec/phase.py, with the policies of spec/policies/fifo.py and spec/policies/cip1.py, and spec/fees.py.

// Phase is one block's timer phase.
type Phase struct {
	w                                *World
	bidding                          *Bidding
	fires                            []Fire
	destroyed                        []any
	ends                             []any // of the destroyed: id and reason
	waits                            map[Bytes]string
	cycles, cells, gcCycles          uint64
	burnedCycle, burnedLane, allTips *big.Int
}

// Fire is the receipt of a fire.
type Fire struct {
	timer                *Timer
	burned, tips, perTip *big.Int
	Ended
}

func (f Fire) fields() []any {
	t := f.timer
	whose := []any{t.id, t.actor, t.trigger, t.sequence, t.payer}
	return slices.Concat(whose, f.Ended.fields(), []any{f.burned, f.tips, f.perTip, f.effects})
}

// turn is a due timer that may fire, and its tip a cycle.
type turn struct {
	timer *Timer
	tip   *big.Int
	score *big.Int
}

func (w *World) newPhase() *Phase {
	return &Phase{
		w: w, bidding: &Bidding{w: w, results: map[Bytes]*bid{}, burned: new(big.Int)}, waits: map[Bytes]string{},
		burnedCycle: new(big.Int), burnedLane: new(big.Int), allTips: new(big.Int),
	}
}

func (ph *Phase) run() {
	w := ph.w
	due := ph.expire(w.dueTimers())
	w.step("expiry", "", false)
	if w.isAuction {
		ph.bidding.run(due)
	}
	ph.scan(ph.turns(due))
	w.step("selection", "", false)
	for id := range ph.waits {
		if w.timers[id] == nil {
			delete(ph.waits, id)
		}
	}
}

// expire destroys expired timers, as far as the budget reaches; returns the others and those that it did not reach.
func (ph *Phase) expire(due []*Timer) []*Timer {
	p, left := ph.w.p, []*Timer{}
	removal := p.number("GC_CYCLES_PER_REMOVAL")
	budget := p.number("TIMER_GC_CYCLES") - p.number("SCAN_LIMIT")*removal
	for _, timer := range due {
		switch {
		case ph.w.height <= timer.expires:
			left = append(left, timer)
		case ph.gcCycles+removal > budget:
			ph.waits[timer.id] = "gc_budget"
			left = append(left, timer)
		default:
			ph.destroy(timer, "expired", "TimerExpired")
		}
	}
	return left
}

func (ph *Phase) destroy(timer *Timer, reason, event string, fields ...[2]string) {
	ph.w.removeTimer(timer)
	ph.gcCycles += ph.w.p.number("GC_CYCLES_PER_REMOVAL")
	reported := Event{event, timer.actor, append([][2]string{{"timer_id", hexText(timer.id)}}, fields...)}
	ph.w.events = append(ph.w.events, reported)
	ph.destroyed = append(ph.destroyed, []any{timer.id, reason, reported.encoded()})
	ph.ends = append(ph.ends, map[string]any{"timer_id": hexText(timer.id), "reason": reason})
}

// fireCap is the cycles of a fire at most, and of one whose timer left its gas limit open.
func (w *World) fireCap() uint64 {
	if w.isAuction {
		return w.p.number("MAX_CYCLES_PER_FIRE_AUCTION_PHASE")
	}
	return w.p.number("MAX_CYCLES_PER_FIRE")
}

func (w *World) isOverCap(timer *Timer) bool { return timer.gas != nil && *timer.gas > w.fireCap() }

// turns returns the timers that may fire, in the order of their turns: by age, or in an auction by score.
func (ph *Phase) turns(due []*Timer) []turn {
	w, found := ph.w, []turn{}
	prices := map[Bytes]bid{}
	if w.isAuction {
		prices = ph.bidding.prices(due)
		w.step("default pricing", "", false)
	}
	divisor := w.divisor()
	for _, timer := range due {
		price := prices[timer.id]
		switch {
		case w.height > timer.expires:
		case w.isAuction && price.maxFee.Cmp(w.price) < 0:
			ph.waits[timer.id] = "below_basefee"
		case w.isOverCap(timer):
			ph.waits[timer.id] = "over_cap"
		case !w.isAuction:
			found = append(found, turn{timer, new(big.Int), nil})
		default:
			tip := least(price.priority, minus(price.maxFee, w.price))
			weight := 2*divisor - min(2*w.recent[timer.actor], divisor)
			found = append(found, turn{timer, tip, times(weight, plus(tip, w.p.amount("PRIORITY_FLOOR")))})
		}
	}
	isAged := w.p["TIE_BREAK"] == "aged"
	if w.isAuction {
		sort.SliceStable(found, func(i, j int) bool {
			a, b := found[i], found[j]
			if order := a.score.Cmp(b.score); order != 0 {
				return order > 0
			}
			if isAged {
				return isOlder(a.timer, b.timer)
			}
			return a.timer.id < b.timer.id
		})
	}
	return found
}

// divisor is twice the median of the fires in the window by actor, at least 2. The middle of an odd number counts twice.
func (w *World) divisor() uint64 {
	counts := []uint64{}
	for _, fires := range w.recent {
		counts = append(counts, fires)
	}
	if len(counts) == 0 {
		return 2
	}
	slices.Sort(counts)
	return max(2, counts[(len(counts)-1)/2]+counts[len(counts)/2])
}

// isFull says whether the lane has no room for any timer.
func (ph *Phase) isFull() bool {
	p := ph.w.p
	return ph.cycles+p.number("MIN_GAS_LIMIT_PER_TIMER") > p.number("LANE_TIMER_CYCLES") ||
		ph.cells >= p.number("LANE_TIMER_CELLS") || uint64(len(ph.fires)) >= p.number("MAX_FIRES_PER_BLOCK")
}

// scan gives the timers their turns, in order, up to the limits of the lane and of the scan.
func (ph *Phase) scan(turns []turn) {
	w, lookedAt := ph.w, uint64(0)
	for place, next := range turns {
		timer := w.timers[next.timer.id]
		if timer == nil {
			continue // a fire has cancelled it
		}
		gas := w.fireCap()
		if timer.gas != nil {
			gas = *timer.gas
		}
		isOver := ph.isFull() || lookedAt >= w.p.number("SCAN_LIMIT")
		fits := ph.cycles+gas <= w.p.number("LANE_TIMER_CYCLES")
		if isOver || !fits && !w.isAuction {
			for _, left := range turns[place:] {
				ph.waits[left.timer.id] = "lane_full"
			}
			return
		}
		if !fits {
			ph.waits[timer.id] = "lane_full"
			lookedAt++
		} else if ph.fireOrTurnAway(timer, next.tip, gas) {
			lookedAt++
		}
	}
}

// fireOrTurnAway fires a timer whose payer can pay. It returns whether the turn counts: that of a destroyed timer does
// not.
func (ph *Phase) fireOrTurnAway(timer *Timer, tip *big.Int, gas uint64) bool {
	w, p := ph.w, ph.w.p
	price := plus(plus(w.basefeeCycle, w.price), tip)
	needed := plus(times(gas, price), times(p.number("MAX_CELLS_PER_FIRE"), w.basefeeCell))
	balance := w.balance(timer.payer)
	if timer.cap != nil {
		balance = least(balance, timer.cap)
	}
	if balance.Cmp(needed) >= 0 {
		ph.fire(timer, tip, gas, needed)
		return true
	}
	if ph.gcCycles+p.number("GC_CYCLES_PER_REMOVAL") > p.number("TIMER_GC_CYCLES") {
		ph.waits[timer.id] = "gc_budget"
		return true
	}
	ph.destroy(timer, "insufficient_funds", "TimerCancelledInsufficientFunds",
		[2]string{"fee_payer", addressText(timer.payer)},
		[2]string{"needed", needed.String()}, [2]string{"balance", balance.String()})
	w.step("destruction", timer.id, false)
	return false
}

// fire removes a timer, takes what it may cost at most, runs its handler and returns the rest.
func (ph *Phase) fire(timer *Timer, tip *big.Int, gas uint64, needed *big.Int) {
	w, payload := ph.w, timer.payload
	if timer.isLong {
		payload, _ = w.get("T" + timer.id)
	}
	w.removeTimer(timer)
	w.debit(timer.payer, needed)
	run := w.newRun(timer.actor, timer.actor, gas, w.p.number("MAX_CELLS_PER_FIRE"))
	_, payload = openEnvelope(timer.handler, payload)
	ended := run.perform(func() {
		run.charge(w.p.number("FIRE_BASE_CYCLES"), 0)
		run.handle(payload)
	})
	burnedCycle := plus(times(run.cycles, w.basefeeCycle), times(run.cells, w.basefeeCell))
	burnedLane, tips := times(run.cycles, w.price), times(run.cycles, tip)
	burned := plus(burnedCycle, burnedLane)
	w.credit(timer.payer, minus(needed, plus(burned, tips)))
	ph.cycles += run.cycles
	ph.cells += run.cells
	ph.burnedCycle = plus(ph.burnedCycle, burnedCycle)
	ph.burnedLane = plus(ph.burnedLane, burnedLane)
	ph.allTips = plus(ph.allTips, tips)
	ph.fires = append(ph.fires, Fire{timer, burned, tips, tip, ended})
	w.step("fire", timer.id, true, ph.fires[len(ph.fires)-1].fields())
}

// beginWindow drops the fires that have left the fairness window.
func (w *World) beginWindow() {
	for height := range w.windows {
		if height+w.p.number("FAIRNESS_WINDOW_BLOCKS") < w.height {
			w.drop("f" + number8(height))
		}
	}
}

// countFires records the block's fires by actor, in an auction.
func (ph *Phase) countFires() {
	counts, actors, fires := map[Bytes]uint64{}, []Bytes{}, []any{}
	for _, fire := range ph.fires {
		if counts[fire.timer.actor]++; counts[fire.timer.actor] == 1 {
			actors = append(actors, fire.timer.actor)
		}
	}
	if len(actors) == 0 || !ph.w.isAuction {
		return
	}
	slices.Sort(actors)
	for _, actor := range actors {
		fires = append(fires, []any{actor, counts[actor]})
	}
	ph.w.put("f"+number8(ph.w.height), encode(fires))
}

// --- basefees and the median tip: spec/fees.py -----------------------------------------------------------------------

func (w *World) nextBasefee(basefee *big.Int, used, target, slope uint64) *big.Int {
	if used == target {
		return basefee
	}
	distance := times(8, new(big.Int).Abs(minus(whole(used), whole(target))))
	span := times(slope, whole(target))
	step := new(big.Int).Mul(basefee, least(distance, span))
	step.Div(step, times(8, span))
	if used > target {
		if step.Sign() == 0 {
			step = whole(1)
		}
		return least(w.p.amount("MAX_BASEFEE"), plus(basefee, step))
	}
	next := minus(basefee, step)
	if floor := w.p.amount("MIN_BASEFEE"); next.Cmp(floor) < 0 {
		return floor
	}
	return next
}

// medianTip is the median tip a cycle of the block's fires; 0 if there are none, or outside of an auction.
func (ph *Phase) medianTip() *big.Int {
	if len(ph.fires) == 0 || !ph.w.isAuction {
		return new(big.Int)
	}
	fires, all, passed := slices.Clone(ph.fires), uint64(0), uint64(0)
	sort.Slice(fires, func(i, j int) bool { return fires[i].perTip.Cmp(fires[j].perTip) < 0 })
	if ph.w.p["P50_WEIGHT"] == "fires" {
		return fires[(len(fires)-1)/2].perTip
	}
	for _, fire := range fires {
		all += fire.cycles
	}
	for _, fire := range fires {
		if passed += fire.cycles; 2*passed >= all {
			return fire.perTip
		}
	}
	return new(big.Int)
}
