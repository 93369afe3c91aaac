// A foreign executor for chains of plain transfers, written from docs/executor.md and docs/protocol.md.
//
// It serves the policies cip1 and fifo, and needs neither a hash function nor a state tree. Anything that is not a
// transfer is answered with "failed".
package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"os"
	"sort"
)

const maxFrame = 64 << 20

// --- MessagePack -----------------------------------------------------------------------------------------------------

// A value is nil, bool, *big.Int, string, []byte or []any.

type reader struct{ data []byte }

func (r *reader) take(n int) []byte {
	if n > len(r.data) {
		panic("a value ends early")
	}
	taken := r.data[:n]
	r.data = r.data[n:]
	return taken
}

func (r *reader) length(size int) int {
	n := uint64(0)
	for _, b := range r.take(size) {
		n = n<<8 | uint64(b)
	}
	if n > maxFrame {
		panic("a length is too large")
	}
	return int(n)
}

func (r *reader) array(n int) []any {
	items := []any{}
	for i := 0; i < n; i++ {
		items = append(items, r.value())
	}
	return items
}

func (r *reader) value() any {
	b := r.take(1)[0]
	switch {
	case b < 0x80:
		return big.NewInt(int64(b))
	case b >= 0x90 && b < 0xa0:
		return r.array(int(b & 15))
	case b >= 0xa0 && b < 0xc0:
		return string(r.take(int(b & 31)))
	case b == 0xc0:
		return nil
	case b == 0xc2 || b == 0xc3:
		return b == 0xc3
	case b >= 0xc4 && b <= 0xc6:
		return r.take(r.length(1 << (b - 0xc4)))
	case b >= 0xcc && b <= 0xcf:
		return new(big.Int).SetBytes(r.take(1 << (b - 0xcc)))
	case b >= 0xd9 && b <= 0xdb:
		return string(r.take(r.length(1 << (b - 0xd9))))
	case b == 0xdc || b == 0xdd:
		return r.array(r.length(2 << (b - 0xdc)))
	}
	panic(fmt.Sprintf("the byte %x begins no value", b))
}

func decode(data []byte) []any {
	r := &reader{data}
	items, ok := r.value().([]any)
	if !ok || len(r.data) > 0 {
		panic("expected one array")
	}
	return items
}

// Every head has the shortest form.
func head(out *bytes.Buffer, n int, small int, first byte, codes [3]byte) {
	switch {
	case n < small:
		out.WriteByte(first | byte(n))
	case n < 1<<8 && codes[0] != 0:
		out.Write([]byte{codes[0], byte(n)})
	case n < 1<<16:
		out.WriteByte(codes[1])
		binary.Write(out, binary.BigEndian, uint16(n))
	default:
		out.WriteByte(codes[2])
		binary.Write(out, binary.BigEndian, uint32(n))
	}
}

func write(out *bytes.Buffer, value any) {
	switch v := value.(type) {
	case nil:
		out.WriteByte(0xc0)
	case bool:
		if v {
			out.WriteByte(0xc3)
		} else {
			out.WriteByte(0xc2)
		}
	case int:
		write(out, uint64(v))
	case uint64:
		if v >= 1<<32 {
			out.WriteByte(0xcf)
			binary.Write(out, binary.BigEndian, v)
		} else {
			head(out, int(v), 0x80, 0, [3]byte{0xcc, 0xcd, 0xce})
		}
	case *big.Int:
		write(out, v.Uint64())
	case string:
		head(out, len(v), 32, 0xa0, [3]byte{0xd9, 0xda, 0xdb})
		out.WriteString(v)
	case []byte:
		head(out, len(v), 0, 0, [3]byte{0xc4, 0xc5, 0xc6})
		out.Write(v)
	case []any:
		head(out, len(v), 16, 0x90, [3]byte{0, 0xdc, 0xdd})
		for _, item := range v {
			write(out, item)
		}
	default:
		panic(fmt.Sprintf("no encoding of %T", value))
	}
}

func encode(value any) []byte {
	out := &bytes.Buffer{}
	write(out, value)
	return out.Bytes()
}

// --- states ----------------------------------------------------------------------------------------------------------

type state struct {
	parent *state
	values map[string][]byte // nil: removed
}

func (s *state) get(key string) []byte {
	for ; s != nil; s = s.parent {
		if value, ok := s.values[key]; ok {
			return value
		}
	}
	return nil
}

type account struct {
	balance *big.Int
	nonce   uint64
}

// The chain's counters and prices, in the order of the record "g".
const (
	basefeeCycle, basefeeCell, basefeeLane, p50, lastUsage, burnedUser = 3, 4, 5, 6, 7, 10
)

type executor struct {
	chain      string
	policy     string
	parameters map[string]any
	blocks     map[uint64]*state
	open       *state
}

func (e *executor) number(name string) *big.Int {
	n, ok := new(big.Int).SetString(fmt.Sprint(e.parameters[name]), 10)
	if !ok {
		panic("no parameter " + name)
	}
	return n
}

// --- blocks ----------------------------------------------------------------------------------------------------------

type transaction struct {
	hash, sender, to                        []byte
	nonce, gas, cells                       uint64
	maxFee, maxPriority, maxCellFee, amount *big.Int
	size                                    int
}

type block struct {
	*executor
	parent   *state
	accounts map[string]account
	globals  []*big.Int
	cycles   uint64
	burned   *big.Int
	tips     *big.Int
	receipts []any
	proposer []byte
	steps    []any
	told     map[string][]byte // the values that the steps gave
}

func amount(data any) *big.Int { return new(big.Int).SetBytes(data.([]byte)) }

func (e *executor) parse(given any) transaction {
	fields := given.([]any)
	wire := fields[2].([]byte)
	body := decode(decode(wire)[2].([]byte))
	action := body[9].([]any)
	if action[0] != "transfer" {
		panic(fmt.Sprintf("the transaction is no transfer, but %v", action[0]))
	}
	return transaction{
		fields[0].([]byte), fields[1].([]byte), action[1].([]byte),
		body[1].(*big.Int).Uint64(), body[2].(*big.Int).Uint64(), body[3].(*big.Int).Uint64(),
		amount(body[4]), amount(body[5]), amount(body[6]), amount(body[7]), len(wire),
	}
}

func (b *block) account(address []byte) account {
	if found, ok := b.accounts[string(address)]; ok {
		return found
	}
	data := b.parent.get("a" + string(address))
	if data == nil {
		return account{new(big.Int), 0}
	}
	fields := decode(data)
	return account{amount(fields[0]), fields[1].(*big.Int).Uint64()}
}

func (b *block) add(address []byte, change *big.Int) {
	if change.Sign() != 0 {
		a := b.account(address)
		b.accounts[string(address)] = account{new(big.Int).Add(a.balance, change), a.nonce}
	}
}

func product(n uint64, price *big.Int) *big.Int {
	return new(big.Int).Mul(new(big.Int).SetUint64(n), price)
}

// step ends a step, which made all changes since the last one. If it made none, it is left out, unless it is always told.
func (b *block) step(kind string, subject []byte, values map[string][]byte, always bool, receipts ...any) {
	changes, encoded := []any{}, []any{}
	for _, key := range sorted(values) {
		before, ok := b.told[key]
		if !ok {
			before = b.parent.get(key)
		}
		if !bytes.Equal(before, values[key]) {
			changes = append(changes, []any{[]byte(key), values[key]})
			b.told[key] = values[key]
		}
	}
	for _, receipt := range receipts {
		encoded = append(encoded, encode(receipt))
	}
	if always || len(changes) > 0 {
		b.steps = append(b.steps, []any{kind, subject, changes, encoded})
	}
}

// values has the new values of the accounts.
func (b *block) values() map[string][]byte {
	values := map[string][]byte{}
	for address, a := range b.accounts {
		values["a"+address] = encode([]any{a.balance.Bytes(), a.nonce})
	}
	return values
}

func sorted(values map[string][]byte) []string {
	keys := []string{}
	for key := range values {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}

// execute admits and runs a transaction; it returns the name of the error if the transaction is not admitted.
func (b *block) execute(t transaction) string {
	cycle, cell := b.globals[basefeeCycle], b.globals[basefeeCell]
	base := b.number("TX_BASE_CYCLES").Uint64()
	sender := b.account(t.sender)
	tip := new(big.Int).Sub(t.maxFee, cycle)
	if t.maxPriority.Cmp(tip) < 0 {
		tip = t.maxPriority
	}
	perCycle := new(big.Int).Add(cycle, tip)
	upfront := new(big.Int).Add(product(t.gas, perCycle), product(t.cells, cell))
	switch {
	case t.nonce != sender.nonce:
		return "BadNonce"
	case t.maxFee.Cmp(cycle) < 0 || t.maxCellFee.Cmp(cell) < 0:
		return "FeeTooLow"
	case t.gas < base:
		return "GasTooLow"
	case b.cycles+t.gas > b.number("LANE_USER_CYCLES").Uint64() || t.cells > b.number("LANE_USER_CELLS").Uint64():
		return "LaneFull"
	case sender.balance.Cmp(new(big.Int).Add(t.amount, upfront)) < 0:
		return "InsufficientFunds"
	}
	movements := []any{}
	b.accounts[string(t.sender)] = account{sender.balance, sender.nonce + 1}
	if t.amount.Sign() != 0 {
		b.add(t.sender, new(big.Int).Neg(t.amount))
		b.add(t.to, t.amount)
		movements = append(movements, []any{t.sender, t.to, t.amount.Bytes()})
	}
	burned, tips := product(base, cycle), product(base, tip)
	b.add(t.sender, new(big.Int).Neg(burned))
	b.add(t.sender, new(big.Int).Neg(tips))
	b.cycles += base
	b.burned.Add(b.burned, burned)
	b.tips.Add(b.tips, tips)
	effects := []any{movements, []any{}, []any{}, []any{}, []any{}}
	b.receipts = append(b.receipts, []any{
		t.hash, t.sender, true, "", base, 0, burned.Bytes(), tips.Bytes(), effects, []byte{},
	})
	return ""
}

// nextBasefee follows "The three basefees" of docs/protocol.md.
func (b *block) nextBasefee(basefee *big.Int, used uint64, target, slope *big.Int) *big.Int {
	distance := new(big.Int).Sub(new(big.Int).SetUint64(used), target)
	span := new(big.Int).Mul(slope, target)
	part := new(big.Int).Mul(big.NewInt(8), new(big.Int).Abs(distance))
	if part.Cmp(span) > 0 {
		part = span
	}
	step := new(big.Int).Mul(basefee, part)
	step.Div(step, new(big.Int).Mul(big.NewInt(8), span))
	next := new(big.Int).Set(basefee)
	switch distance.Sign() {
	case 1:
		if step.Sign() == 0 {
			step.SetInt64(1)
		}
		if next.Add(next, step).Cmp(b.number("MAX_BASEFEE")) > 0 {
			return b.number("MAX_BASEFEE")
		}
	case -1:
		if next.Sub(next, step).Cmp(b.number("MIN_BASEFEE")) < 0 {
			return b.number("MIN_BASEFEE")
		}
	}
	return next
}

func (b *block) finish(height uint64) (*state, []any) {
	b.add(b.proposer, b.tips)
	old, eight := b.globals, big.NewInt(8)
	next := append([]*big.Int{}, old...)
	next[basefeeCycle] = b.nextBasefee(old[basefeeCycle], b.cycles, b.number("BLOCK_CYCLES_TARGET"), eight)
	next[basefeeCell] = b.nextBasefee(old[basefeeCell], 0, b.number("BLOCK_CELLS_TARGET"), eight)
	next[basefeeLane] = next[basefeeCycle]
	if b.policy == "cip1" && height > b.number("ACTIVATION_HEIGHT").Uint64() {
		target := new(big.Int).Div(b.number("LANE_TIMER_CYCLES"), big.NewInt(2))
		next[basefeeLane] = b.nextBasefee(old[basefeeLane], 0, target, b.number("LANE_BASEFEE_SLOPE"))
	}
	next[p50] = new(big.Int)
	next[lastUsage] = new(big.Int).SetUint64(b.cycles)
	next[burnedUser] = new(big.Int).Add(old[burnedUser], b.burned)
	after := &state{b.parent, b.values()}
	b.step("transaction tips", []byte{}, after.values, false)
	record := []any{}
	for _, each := range next {
		record = append(record, each.Bytes())
	}
	after.values["g"] = encode(record)
	b.step("prices and counters", []byte{}, after.values, true)
	changes := []any{}
	for _, key := range sorted(after.values) {
		changes = append(changes, []any{[]byte(key), after.values[key]})
	}
	none := []any{}
	receipts := encode([]any{height, b.proposer, b.receipts, none, none, none, none, 0, old[p50].Bytes()})
	return after, []any{
		old[basefeeCycle].Bytes(), old[basefeeCell].Bytes(), old[basefeeLane].Bytes(), 0, 0, b.cycles, 0,
		receipts, changes, nil, 0,
	}
}

// --- requests --------------------------------------------------------------------------------------------------------

func (e *executor) begin(request []any) (*block, uint64) {
	parent, ok := e.blocks[request[1].(*big.Int).Uint64()]
	if !ok {
		panic("the parent is not known")
	}
	b := &block{executor: e, parent: parent, accounts: map[string]account{}, burned: new(big.Int), tips: new(big.Int)}
	b.receipts, b.proposer, b.told = []any{}, request[4].([]byte), map[string][]byte{}
	b.step("start", []byte{}, nil, true)
	for _, each := range decode(parent.get("g")) {
		b.globals = append(b.globals, amount(each))
	}
	return b, request[3].(*big.Int).Uint64()
}

func (e *executor) apply(request []any) []any {
	b, height := e.begin(request)
	steps := func() any {
		if request[6] == true {
			return b.steps
		}
		return nil
	}
	for _, given := range request[5].([]any) {
		t := e.parse(given)
		before := len(b.receipts)
		refusal := b.execute(t)
		b.step("transaction", t.hash, b.values(), true, b.receipts[before:]...)
		if refusal != "" {
			return []any{"refused", refusal, steps()}
		}
	}
	after, result := b.finish(height)
	e.blocks[request[2].(*big.Int).Uint64()] = after
	return []any{"applied", result, steps()}
}

func (e *executor) build(request []any) []any {
	b, height := e.begin(request)
	most, left := int(request[5].(*big.Int).Int64()), int(request[6].(*big.Int).Int64())
	taken, refused, full, isRefused := []any{}, []any{}, map[string]bool{}, map[string]bool{}
	order := []string{}
	for place, given := range request[7].([]any) {
		t := e.parse(given)
		sender := string(t.sender)
		if len(taken) == most {
			break
		}
		if t.nonce < b.account(t.sender).nonce || full[sender] {
			continue
		}
		if t.size > left {
			full[sender] = true
			continue
		}
		switch b.execute(t) {
		case "":
			taken, left, isRefused[sender] = append(taken, place), left-t.size, false
		case "LaneFull":
			full[sender] = true
		default:
			if _, known := isRefused[sender]; !known {
				isRefused[sender] = true
				order = append(order, sender)
			}
		}
	}
	for _, sender := range order {
		if isRefused[sender] {
			refused = append(refused, []byte(sender))
		}
	}
	after, result := b.finish(height)
	e.blocks[request[2].(*big.Int).Uint64()] = after
	return []any{"built", taken, refused, result}
}

// descends says whether a state is another one or above it.
func descends(s, from *state) bool {
	for ; s != nil; s = s.parent {
		if s == from {
			return true
		}
	}
	return false
}

func (e *executor) keep(isKept func(*state) bool) {
	for number, each := range e.blocks {
		if !isKept(each) {
			delete(e.blocks, number)
		}
	}
}

func (e *executor) commit(final *state) {
	e.keep(func(each *state) bool { return descends(each, final) })
	line := []*state{}
	for s := final; s != e.open; s = s.parent {
		line = append(line, s)
	}
	for i := len(line) - 1; i >= 0; i-- {
		for key, value := range line[i].values {
			e.open.values[key] = value
		}
	}
	final.parent, final.values, e.open = nil, e.open.values, final
}

func (e *executor) answer(request []any) (answer []any) {
	defer func() {
		if problem := recover(); problem != nil {
			answer = []any{"failed", fmt.Sprint(problem)}
		}
	}()
	switch request[0] {
	case "open":
		chain := request[2].([]any)
		e.chain, e.policy, e.parameters = chain[0].(string), chain[1].(string), map[string]any{}
		numbers := json.NewDecoder(bytes.NewReader([]byte(chain[2].(string))))
		numbers.UseNumber()
		if err := numbers.Decode(&e.parameters); err != nil {
			panic(err)
		}
		e.open = &state{nil, map[string][]byte{}}
		e.blocks = map[uint64]*state{0: e.open}
	case "load":
		for _, entry := range request[1].([]any) {
			pair := entry.([]any)
			e.open.values[string(pair[0].([]byte))] = bytes.Clone(pair[1].([]byte))
		}
	case "apply":
		return e.apply(request)
	case "build":
		return e.build(request)
	case "commit":
		e.commit(e.blocks[request[1].(*big.Int).Uint64()])
	case "roll_back":
		gone := e.blocks[request[1].(*big.Int).Uint64()]
		e.keep(func(each *state) bool { return !descends(each, gone) })
	default:
		panic(fmt.Sprintf("the request %v is not known", request[0]))
	}
	return []any{"done"}
}

func main() {
	in, e := bufio.NewReader(os.Stdin), &executor{}
	for {
		length := make([]byte, 4)
		if _, err := io.ReadFull(in, length); err != nil {
			return
		}
		size := binary.BigEndian.Uint32(length)
		if size > maxFrame {
			fmt.Fprintln(os.Stderr, "a frame is too long")
			os.Exit(1)
		}
		content := make([]byte, size)
		if _, err := io.ReadFull(in, content); err != nil {
			return
		}
		answer := encode(e.answer(decode(content)))
		os.Stdout.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(answer))), answer...))
	}
}
