package main

import (
	"encoding/hex"
	"math/big"
	"slices"
)

// This file is spec/timers.py, and Host.schedule_timer of spec/host.py.

var tiers = []string{"economy", "standard", "fast", "urgent"}

// Request is what a handler asks for. What is nil or empty is left open.
type Request struct {
	height                               *big.Int // nil if it watches a key
	payload                              Bytes
	handler                              string
	payer                                Bytes
	gas, expires, maxFee, prio, payerCap *big.Int
	tier                                 string
	bid                                  *big.Int
}

// parseID is the id that 64 hex digits give; empty, which is no timer's, for any other text.
func parseID(text string) Bytes {
	id, err := hex.DecodeString(text)
	if err != nil || len(id) != 32 {
		return ""
	}
	return Bytes(id)
}

func hexText(data Bytes) string { return hex.EncodeToString([]byte(data)) }

// schedule checks a request, in the order of the errors, and enters its timer; returns its id.
func (r *Run) schedule(q Request) Bytes {
	w := r.w
	r.charge(1_000, uint64(len(q.payload)))
	if q.bid != nil {
		refuseIf(w.isAuction, "TimerArgDeprecated")
		r.report("TimerBidIgnored")
	}
	priority := w.statedPriority(q)
	refuseIf(q.height == nil, "WatchUnavailable")
	refuseIf(q.height.Cmp(whole(w.height)) <= 0, "TimerHeightNotInFuture")
	refuseIf(q.height.Cmp(heightLimit) >= 0, "TimerHeightOutOfRange")
	refuseIf(uint64(len(q.payload)) > w.p.number("MAX_TIMER_PAYLOAD"), "TimerPayloadTooLarge")
	refuseIf(!isName(q.handler), "TimerHandlerInvalid")
	actor, _ := w.actor(r.actor)
	refuseIf(actor.timers >= w.p.number("MAX_TIMERS_PER_ACTOR"), "TimerLimitReached")
	payer, most := r.payer(q)
	var gas *uint64
	if q.gas != nil {
		refuseIf(q.gas.Cmp(w.p.amount("MIN_GAS_LIMIT_PER_TIMER")) < 0, "TimerGasLimitTooLow")
		refuseIf(q.gas.Cmp(whole(w.fireCap())) > 0, "TimerGasLimitTooHigh")
		limit := q.gas.Uint64()
		gas = &limit
	}
	expires := whole(w.height + w.p.number("MAX_TTL"))
	if q.expires != nil {
		expires = least(expires, q.expires)
	}
	refuseIf(expires.Cmp(q.height) < 0, "TimerExpiryInvalid")
	kept := priority
	if w.isAuction && q.maxFee != nil {
		refuseIf(q.maxFee.Cmp(w.price) < 0, "TimerRejectedBelowBasefee")
		if room := minus(q.maxFee, w.price); priority != nil && priority.Cmp(room) > 0 {
			kept = room
		}
	}
	timer := &Timer{
		actor: r.actor, trigger: q.height.Uint64(), sequence: w.count(nextSequence), handler: q.handler,
		payload: q.payload, payer: payer, gas: gas, expires: expires.Uint64(), maxFee: q.maxFee, priority: kept,
		cap: most, scheduled: w.height,
	}
	timer.id = keccak(r.actor, number8(timer.trigger), q.payload, number8(actor.nonce))
	if timer.isLong = len(q.payload) > longestInline; timer.isLong {
		w.put("T"+timer.id, q.payload)
	}
	w.keepTimer(timer)
	actor.nonce++
	actor.timers++
	w.setActor(r.actor, actor)
	w.count(liveTimers)
	if payer != r.actor {
		r.allowance = minus(r.allowance, most)
	}
	if kept != priority {
		r.report("TimerPriorityClampedAtSchedule", [2]string{"timer_id", hexText(timer.id)},
			[2]string{"stated", priority.String()}, [2]string{"clamped", kept.String()})
	}
	r.scheduled = append(r.scheduled, []any{
		timer.id, timer.actor, timer.trigger, timer.sequence, timer.expires, payer, gas, q.maxFee, kept, most,
	})
	return timer.id
}

// statedPriority is the priority of a request: stated, filled by its tier, or open.
func (w *World) statedPriority(q Request) *big.Int {
	for _, figure := range []*big.Int{q.maxFee, q.prio, q.payerCap} {
		refuseIf(figure != nil && !isPrice(figure), "TimerFeeOutOfRange")
	}
	if q.tier == "" {
		return q.prio
	}
	share := w.p["PRIORITY_TIERS"].([]any)[slices.Index(tiers, q.tier)].(*big.Int)
	filled := new(big.Int).Mul(w.p50, share)
	filled.Div(filled, whole(10))
	refuseIf(q.prio != nil || !isPrice(filled), "TimerFeeOutOfRange")
	return filled
}

// payer returns the payer, and what it pays at most. Another payer than the actor is the sender of the transaction that
// runs.
func (r *Run) payer(q Request) (Bytes, *big.Int) {
	if q.payer == "" || q.payer == r.actor {
		return r.actor, q.payerCap
	}
	isAllowed := r.allowance != nil && q.payer == r.sender && !isReserved(q.payer)
	refuseIf(!isAllowed, "TimerFeePayerForbidden")
	most := q.payerCap
	if most == nil {
		most = r.allowance
	}
	refuseIf(most.Sign() < 1 || most.Cmp(r.allowance) > 0, "TimerFeePayerForbidden")
	return q.payer, most
}

func (r *Run) ownTimer(id Bytes) *Timer {
	timer := r.w.timers[id]
	refuseIf(timer == nil, "NotFound")
	refuseIf(timer.actor != r.actor, "NotOwner")
	return timer
}

// extend sets a later expiry, at most MAX_TTL from now; returns it.
func (w *World) extend(timer *Timer, expires *big.Int) uint64 {
	expires = least(expires, whole(w.height+w.p.number("MAX_TTL")))
	refuseIf(w.height > timer.expires || expires.Cmp(whole(timer.expires)) <= 0, "TimerExpiryInvalid")
	extended := *timer
	extended.expires = expires.Uint64()
	w.keepTimer(&extended)
	return extended.expires
}
