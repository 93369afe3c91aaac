package main

import (
	"fmt"
	"math/big"
	"strings"
)

// This file is spec/parameters.py, as far as cip1 and fifo use the parameters, and spec/governance.py.

// Parameters has the value of each parameter by its name: *big.Int, a text, or a list of four *big.Int.
type Parameters map[string]any

// defaults has the parameters that cip1 and fifo read. PRIORITY_TIERS are tenths of the median tip.
func defaults() Parameters {
	p := Parameters{
		"TIE_BREAK": "id", "P50_WEIGHT": "fires",
		"PRIORITY_TIERS": []any{whole(8), whole(10), whole(15), whole(25)},
		"MAX_BASEFEE":    new(big.Int).Exp(whole(10), whole(24), nil),
	}
	for name, value := range map[string]uint64{
		"LANE_TIMER_CYCLES": 2_000_000, "TIMER_GC_CYCLES": 5_000_000, "GC_CYCLES_PER_REMOVAL": 200,
		"MAX_CYCLES_PER_FIRE": 550_000, "MAX_CYCLES_PER_FIRE_AUCTION_PHASE": 250_000, "MAX_CELLS_PER_FIRE": 550_000,
		"MIN_GAS_LIMIT_PER_TIMER": 1_000, "FIRE_BASE_CYCLES": 1_000, "TX_BASE_CYCLES": 1_000,
		"LANE_USER_CYCLES": 5_000_000, "LANE_DEFERRED_CYCLES": 7_000_000, "LANE_SYSTEM_CYCLES": 500_000,
		"BLOCK_CYCLES_TARGET": 5_000_000, "BLOCK_CELLS_TARGET": 500_000, "MESSAGE_CYCLES": 100_000,
		"MESSAGE_CELLS": 10_000, "ACTIVATION_HEIGHT": 0, "LANE_USER_CELLS": 1_000_000, "LANE_TIMER_CELLS": 1_000_000,
		"MESSAGE_BASE_CYCLES": 1_000, "GBA_QUERIES_PER_ACTOR": 16, "GBA_UNPAID_PAUSE": 64, "RING_BUFFER_SIZE": 4_096,
		"EPOCH_LENGTH": 3_600, "EPOCH_HORIZON": 24, "MAX_TIMER_PAYLOAD": 1_048_576, "MAX_TIMERS_PER_ACTOR": 1_024,
		"MAX_TTL": 2_592_000, "FAIRNESS_WINDOW_BLOCKS": 1_000, "LANE_BASEFEE_SLOPE": 1,
		"LANE_FEE_MULTIPLIER_MILLI": 1_000, "INITIAL_BASEFEE": 1_000_000, "MIN_BASEFEE": 10_000,
		"GBA_MAX_CYCLES": 10_000, "GBA_BUDGET_CYCLES": 1_000_000, "MAILBOX_BYTES": 1_000_000, "SCAN_LIMIT": 4_096,
		"PRIORITY_FLOOR": 0, "DEFAULT_TIP_CAP": 0, "MAX_FIRES_PER_BLOCK": 1_000_000_000,
	} {
		p[name] = whole(value)
	}
	return p
}

// hardened is the preset of this name.
var hardened = Parameters{
	"PRIORITY_FLOOR": whole(1), "TIE_BREAK": "aged", "P50_WEIGHT": "cycles", "DEFAULT_TIP_CAP": whole(8),
}

// candidates are parameters of cip1 that this program has at their defaults alone ("cip1: the candidates" of
// docs/policies.md).
var candidates = map[string]string{
	"WEIGHT_PARTY": "actor", "MEDIAN_SMOOTHING_MILLI": "1000",
	"WEIGHT_CLIP_MIN_MILLI": "1000", "WEIGHT_CLIP_MAX_MILLI": "2000",
}

// governed has the parameters that the instruction 49 may change, with the least and the greatest value.
var governed = map[string][2]uint64{
	"FAIRNESS_WINDOW_BLOCKS": {1, 100_000}, "LANE_BASEFEE_SLOPE": {1, 8}, "LANE_FEE_MULTIPLIER_MILLI": {0, 10_000},
	"LANE_TIMER_CYCLES": {2, 1e9}, "MAX_CELLS_PER_FIRE": {1, 1e9}, "MAX_CYCLES_PER_FIRE": {1, 1e9},
	"MAX_CYCLES_PER_FIRE_AUCTION_PHASE": {1, 1e9}, "MAX_TTL": {1, 1e9}, "PRIORITY_FLOOR": {0, 1e18},
	"PRIORITY_TIERS": {0, 1_000}, "TIMER_GC_CYCLES": {1, 1e9},
}

func (p Parameters) amount(name string) *big.Int { return p[name].(*big.Int) }
func (p Parameters) number(name string) uint64   { return p[name].(*big.Int).Uint64() }

// set takes given values, as a genesis has them. Those that only other policies read are left out.
func (p Parameters) set(policy string, given *Object) {
	for _, name := range given.keys {
		value := given.values[name]
		if usual, ok := candidates[name]; ok && policy == "cip1" && fmt.Sprint(value) != usual {
			panic(unsupported("the parameter " + name + " of cip1"))
		}
		switch p[name].(type) {
		case *big.Int:
			p[name] = integer(value, "params."+name)
		case string:
			p[name] = value
		case []any:
			tiers := []any{}
			for _, tier := range value.([]any) {
				tiers = append(tiers, integer(tier, "params."+name))
			}
			p[name] = tiers
		}
	}
}

// storedKey is the key of a governed parameter in the storage of the parameters' account.
func storedKey(name string) string { return "system:cip1:" + strings.ToLower(name) }

// storedText is a governed parameter as it is stored: decimal text, tiers as a JSON list without spaces.
func storedText(value any) Bytes { return Bytes(jsonText(value)) }

// parametersInForce returns the genesis's parameters, with the governed ones as they are in state.
func (w *World) parametersInForce() Parameters {
	p := Parameters{}
	for name, value := range w.genesis {
		p[name] = value
	}
	for name := range governed {
		text, _ := w.get(storageKey(parametersAddress, storedKey(name)))
		p[name], _ = parseJSON(text, 1)
	}
	return p
}

// instruct carries out an instruction of a system deployer.
func (r *Run) instruct(instruction []any) {
	w := r.w
	refuseIf(!w.deployers[r.sender], "NotSystemDeployer")
	if instruction[0] == uint64(49) {
		w.updateParameters(Bytes(instruction[1].(string)))
		return
	}
	timer := w.timers[instruction[1].(Bytes)]
	if instruction[0] == uint64(48) {
		if timer != nil {
			w.removeTimer(timer)
			r.changes = append(r.changes, []any{"cancelled", timer.id})
		}
		return
	}
	refuseIf(timer == nil, "NotFound")
	r.changes = append(r.changes, []any{"extended", timer.id, w.extend(timer, whole(instruction[2].(uint64)))})
}

// updateParameters sets governed parameters, from the next block on: all of them or none.
func (w *World) updateParameters(config Bytes) {
	given, err := parseJSON(config, 64)
	object, ok := given.(*Object)
	refuseIf(err != nil || !ok, "ConfigInvalid")
	p := w.parametersInForce()
	for name, value := range object.values {
		limits, isGoverned := governed[name]
		refuseIf(!isGoverned, "ConfigInvalid")
		tiers, isList := value.([]any)
		if name == "PRIORITY_TIERS" {
			refuseIf(!isList || len(tiers) != 4, "ConfigInvalid")
			checked := []any{}
			for _, tier := range tiers {
				checked = append(checked, within(tier, limits))
			}
			p[name] = checked
		} else {
			p[name] = within(value, limits)
		}
	}
	for _, names := range [][3]string{
		{"MIN_GAS_LIMIT_PER_TIMER", "MAX_CYCLES_PER_FIRE", "LANE_TIMER_CYCLES"},
		{"MIN_GAS_LIMIT_PER_TIMER", "MAX_CYCLES_PER_FIRE_AUCTION_PHASE", "LANE_TIMER_CYCLES"},
	} {
		a, b, c := p.number(names[0]), p.number(names[1]), p.number(names[2])
		refuseIf(a > b || b > c, "ConfigInvalid")
	}
	scanned := 2 * p.number("SCAN_LIMIT") * p.number("GC_CYCLES_PER_REMOVAL")
	refuseIf(scanned > p.number("TIMER_GC_CYCLES"), "ConfigInvalid")
	for name := range object.values {
		w.put(storageKey(parametersAddress, storedKey(name)), storedText(p[name]))
	}
}

// within is a governed number, which may be decimal text.
func within(value any, limits [2]uint64) *big.Int {
	if text, ok := value.(string); ok && len(text) <= 40 {
		value = decimal(text)
	}
	number, ok := value.(*big.Int)
	ok = ok && number != nil && number.Cmp(whole(limits[0])) >= 0 && number.Cmp(whole(limits[1])) <= 0
	refuseIf(!ok, "ConfigInvalid")
	return number
}

// decimal is the number of a decimal text without sign and leading zeros, or nil.
func decimal(text string) *big.Int {
	if text == "" || text[0] == '0' && text != "0" || strings.Trim(text, "0123456789") != "" {
		return nil
	}
	number, _ := new(big.Int).SetString(text, 10)
	return number
}
