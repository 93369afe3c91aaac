package main

import (
	"math/big"
	"slices"
)

// This file is the chapters "arguments" and "operations" of spec/scripts.py.

const maxNesting = 64

// operation performs a checked operation in a run.
type operation func(*Run)

func needScript(condition bool) {
	if !condition {
		panic(failure{"BadScript", false})
	}
}

// script checks a whole payload, then performs its operations in order.
func (r *Run) script(payload Bytes) {
	value, err := parseJSON(payload, maxNesting)
	items, isList := value.([]any)
	needScript(err == nil && isList)
	operations := []operation{}
	for _, item := range items {
		operations = append(operations, readOperation(item))
	}
	for _, perform := range operations {
		perform(r)
	}
}

func text(value any) string {
	found, ok := value.(string)
	needScript(ok)
	return found
}

func number(value any) *big.Int {
	found, ok := value.(*big.Int)
	needScript(ok)
	return found
}

func unsigned(value any) *big.Int {
	found := number(value)
	needScript(found.Sign() >= 0)
	return found
}

// addressOf is the address of 0x and 40 hex digits; it is not ok for any other value.
func addressOf(value any) (address Bytes, ok bool) {
	digits, _ := value.(string)
	if len(digits) != 42 || digits[0] != '0' || digits[1] != 'x' && digits[1] != 'X' || !isHex(digits[2:]) {
		return "", false
	}
	return fromHex(digits[2:]), true
}

func scriptAddress(value any) Bytes {
	found, ok := addressOf(value)
	needScript(ok)
	return found
}

// payloadOf is the bytes of a text, of hex digits, or of a list, which means its JSON in ASCII.
func payloadOf(value any) (payload Bytes, ok bool) {
	switch v := value.(type) {
	case string:
		return Bytes(v), true
	case []any:
		return Bytes(jsonText(v)), true
	case *Object:
		digits, isText := v.values["hex"].(string)
		if isText && len(digits)%2 == 0 && isHex(digits) {
			return fromHex(digits), true
		}
	}
	return "", false
}

// arguments is the object of named arguments of an operation. Null is as if left out.
type arguments map[string]any

// named reads the one object of an operation: all of the needed names, and exactly one of the others.
func named(values []any, needed []string, oneOf ...string) arguments {
	needScript(len(values) == 1)
	object, ok := values[0].(*Object)
	needScript(ok)
	found, alternatives := arguments{}, 0
	for key, value := range object.values {
		if value != nil {
			found[key] = value
		}
	}
	for _, name := range needed {
		needScript(found[name] != nil)
	}
	for _, name := range oneOf {
		alternatives += len(found.texts(name))
	}
	needScript(len(oneOf) == 0 || alternatives == 1)
	return found
}

// texts has the argument of a name, if it is given.
func (a arguments) texts(name string) []any {
	if a[name] == nil {
		return nil
	}
	return []any{a[name]}
}

func (a arguments) number(name string) *big.Int {
	if a[name] == nil {
		return nil
	}
	return number(a[name])
}

func (a arguments) text(name, otherwise string) string {
	if a[name] == nil {
		return otherwise
	}
	return text(a[name])
}

func (a arguments) payload() Bytes {
	payload, ok := payloadOf(a["payload"])
	needScript(ok)
	return payload
}

// timer returns what finds the timer that arguments name, by its id or by the key under which it was saved.
func (a arguments) timer() func(*Run) Bytes {
	id, saved, isSaved := a.text("id", ""), a.text("saved", ""), a["saved"] != nil
	return func(r *Run) Bytes {
		if isSaved {
			return parseID(string(r.get(saved)))
		}
		return parseID(id)
	}
}

// readOperation checks an operation.
func readOperation(item any) operation {
	parts, ok := item.([]any)
	needScript(ok && len(parts) > 0)
	name, values := text(parts[0]), parts[1:]
	count := map[string]int{"set": 2, "emit": 2, "allow_watching": 2}[name]
	needScript(len(values) == max(count, 1))
	switch name {
	case "burn":
		cycles := unsigned(values[0])
		return func(r *Run) { r.chargeAny(cycles) }
	case "get":
		key := text(values[0])
		return func(r *Run) { r.get(key) }
	case "set":
		key, value := text(values[0]), text(values[1])
		return func(r *Run) { r.store(key, Bytes(value)) }
	case "del":
		key := text(values[0])
		return func(r *Run) { r.remove(key) }
	case "allow_watching":
		key := text(values[0])
		_, isFlag := values[1].(bool)
		needScript(isFlag)
		return func(r *Run) { r.allowWatching(key) }
	case "emit":
		event, data := text(values[0]), text(values[1])
		return func(r *Run) { r.emit(event, data) }
	case "fail":
		text(values[0])
		return func(*Run) { panic(failure{"ScriptFailed", false}) }
	case "try":
		tried := readOperation(values[0])
		return func(r *Run) { r.try(tried) }
	case "transfer":
		given := named(values, []string{"to", "amount"})
		to, moved := scriptAddress(given["to"]), unsigned(given["amount"])
		return func(r *Run) { r.transfer(to, moved) }
	case "send":
		given := named(values, []string{"to", "handler", "payload"})
		to, handler, payload := scriptAddress(given["to"]), text(given["handler"]), given.payload()
		cycles, cells := given.number("cycles"), given.number("cells")
		return func(r *Run) { r.send(to, handler, payload, cycles, cells) }
	case "cancel":
		find := named(values, nil, "id", "saved").timer()
		return func(r *Run) { r.cancel(find(r)) }
	case "extend":
		given := named(values, []string{"expires_at"}, "id", "saved")
		find, expires := given.timer(), number(given["expires_at"])
		return func(r *Run) { r.extend(find(r), expires) }
	case "schedule":
		return readSchedule(named(values, []string{"payload"}, "height", "in", "watch"))
	}
	panic(failure{"BadScript", false})
}

// try performs an operation, and catches its refusal.
func (r *Run) try(tried operation) {
	defer func() {
		if problem := recover(); problem != nil {
			refused, ok := problem.(failure)
			if !ok || !refused.isRefusal {
				panic(problem)
			}
			r.report("ScriptCaught", [2]string{"error", refused.name})
		}
	}()
	tried(r)
}

func readSchedule(given arguments) operation {
	q := Request{
		height: given.number("height"), payload: given.payload(), handler: given.text("handler", defaultHandler),
		gas: given.number("gas_limit"), expires: given.number("expires_at"), maxFee: given.number("max_fee_per_cycle"),
		prio: given.number("max_priority_fee_per_cycle"), payerCap: given.number("payer_cap"),
		tier: given.text("tier", ""), bid: given.number("bid"),
	}
	in, saveAs := given.number("in"), given.text("save_as", "")
	needScript(given["tier"] == nil || slices.Contains(tiers, q.tier))
	if given["watch"] != nil {
		watch, ok := given["watch"].(*Object)
		needScript(ok)
		scriptAddress(watch.values["actor"])
		text(watch.values["key"])
	}
	isSenders := given["fee_payer"] == "sender"
	if given["fee_payer"] != nil && !isSenders && given["fee_payer"] != "self" {
		q.payer = scriptAddress(given["fee_payer"])
	}
	return func(r *Run) {
		asked := q
		if in != nil {
			asked.height = plus(whole(r.w.height), in)
		}
		if isSenders {
			asked.payer = r.sender
		}
		id := r.schedule(asked)
		if given["save_as"] != nil {
			r.store(saveAs, Bytes(hexText(id)))
		}
	}
}
