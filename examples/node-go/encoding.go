package main

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/big"
	"strings"
)

// This file is the chapter "MessagePack" of spec/encoding.py.

// Bytes are immutable bytes: addresses, hashes, keys and values of the state, payloads. A Go string is a text.
type Bytes string

const maxFrame = 64 << 20

// join puts bytes one after the other.
func join(parts []Bytes) Bytes {
	var whole strings.Builder
	for _, part := range parts {
		whole.WriteString(string(part))
	}
	return Bytes(whole.String())
}

// number8 is a number of 8 bytes, as keys and hashes have it.
func number8(number uint64) Bytes {
	return Bytes(binary.BigEndian.AppendUint64(nil, number))
}

// encode is the one encoding of an array of these fields: each value in its shortest form. An amount (*big.Int) is
// bytes without leading zeros, a number (uint64) is a uint; nil, also as a pointer, is null.
func encode(fields ...any) Bytes {
	return Bytes(appendValue(nil, fields))
}

func appendValue(out []byte, value any) []byte {
	switch v := value.(type) {
	case nil:
		return append(out, 0xc0)
	case bool:
		if v {
			return append(out, 0xc3)
		}
		return append(out, 0xc2)
	case int:
		return appendValue(out, uint64(v))
	case uint64:
		if v >= 1<<32 {
			return binary.BigEndian.AppendUint64(append(out, 0xcf), v)
		}
		return appendHead(out, int(v), 0x80, 0, [3]byte{0xcc, 0xcd, 0xce})
	case *uint64:
		if v == nil {
			return append(out, 0xc0)
		}
		return appendValue(out, *v)
	case *big.Int:
		if v == nil {
			return append(out, 0xc0)
		}
		return appendValue(out, Bytes(v.Bytes()))
	case string:
		return append(appendHead(out, len(v), 32, 0xa0, [3]byte{0xd9, 0xda, 0xdb}), v...)
	case Bytes:
		return append(appendHead(out, len(v), 0, 0, [3]byte{0xc4, 0xc5, 0xc6}), v...)
	case []any:
		out = appendHead(out, len(v), 16, 0x90, [3]byte{0, 0xdc, 0xdd})
		for _, item := range v {
			out = appendValue(out, item)
		}
		return out
	}
	panic(fmt.Sprintf("no encoding of %T", value))
}

// appendHead appends the shortest head for a length or a small number. A code of 0 is a form that does not exist.
func appendHead(out []byte, n, small int, first byte, codes [3]byte) []byte {
	switch {
	case n < small:
		return append(out, first|byte(n))
	case n < 1<<8 && codes[0] != 0:
		return append(out, codes[0], byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(out, codes[1]), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(out, codes[2]), uint32(n))
}

// decode returns the items of an array: nil, bool, uint64, string, Bytes or []any. It panics with a text for anything
// else. It reads trusted bytes, so it takes longer forms, too.
func decode(data Bytes) []any {
	r := &reader{data}
	items, ok := r.value().([]any)
	if !ok || len(r.data) > 0 {
		panic("expected one array")
	}
	return items
}

type reader struct{ data Bytes }

func (r *reader) take(n int) Bytes {
	if n > len(r.data) {
		panic("a value ends early")
	}
	taken := r.data[:n]
	r.data = r.data[n:]
	return taken
}

func (r *reader) number(size int) (n uint64) {
	for _, b := range []byte(r.take(size)) {
		n = n<<8 | uint64(b)
	}
	return n
}

func (r *reader) length(size int) int {
	n := r.number(size)
	if n > maxFrame {
		panic("a length is too large")
	}
	return int(n)
}

func (r *reader) array(n int) []any {
	items := []any{}
	for range n {
		items = append(items, r.value())
	}
	return items
}

func (r *reader) value() any {
	b := r.take(1)[0]
	switch {
	case b < 0x80:
		return uint64(b)
	case b >= 0x80 && b < 0x90: // a map, as an array of its keys and values
		return r.array(2 * int(b&15))
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
		return r.number(1 << (b - 0xcc))
	case b >= 0xd9 && b <= 0xdb:
		return string(r.take(r.length(1 << (b - 0xd9))))
	case b == 0xdc || b == 0xdd:
		return r.array(r.length(2 << (b - 0xdc)))
	}
	panic(fmt.Sprintf("the byte %x begins no value", b))
}

// amount is a decoded uint, or nil for null.
func amount(value any) *big.Int {
	if value == nil {
		return nil
	}
	return new(big.Int).SetBytes([]byte(value.(Bytes)))
}

// maybe is a decoded number, or nil for null.
func maybe(value any) *uint64 {
	if value == nil {
		return nil
	}
	n := value.(uint64)
	return &n
}

// --- amounts ---------------------------------------------------------------------------------------------------------

var (
	priceLimit  = new(big.Int).Lsh(big.NewInt(1), 96)
	heightLimit = new(big.Int).Lsh(big.NewInt(1), 63)
)

func whole(n uint64) *big.Int      { return new(big.Int).SetUint64(n) }
func plus(a, b *big.Int) *big.Int  { return new(big.Int).Add(a, b) }
func minus(a, b *big.Int) *big.Int { return new(big.Int).Sub(a, b) }
func times(n uint64, b *big.Int) *big.Int {
	return new(big.Int).Mul(whole(n), b)
}

func least(a, b *big.Int) *big.Int {
	if b.Cmp(a) < 0 {
		return b
	}
	return a
}

func isPrice(n *big.Int) bool { return n.Sign() >= 0 && n.Cmp(priceLimit) < 0 }

// fromHex is the bytes of hex digits that were checked.
func fromHex(digits string) Bytes {
	data, err := hex.DecodeString(digits)
	if err != nil {
		panic(err.Error())
	}
	return Bytes(data)
}
