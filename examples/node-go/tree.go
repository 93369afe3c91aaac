package main

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"strings"
)

// This file is spec/tree.py: the state tree, and its root after each block (docs/state.md).

const (
	twigLevels  = 11
	twigEntries = 1 << twigLevels
	noPosition  = ^uint64(0)
	slack       = 4_096
)

// link is a live key after its hash.
type link struct{ hash, key Bytes }

func compareLinks(a, b link) int {
	if order := strings.Compare(string(a.hash), string(b.hash)); order != 0 {
		return order
	}
	return strings.Compare(string(a.key), string(b.key))
}

// Tree is a state tree, empty at first.
type Tree struct {
	values    map[Bytes]Bytes
	ring      []link           // the live keys, ascending
	positions map[Bytes]uint64 // of the active entries
	entries   []Bytes          // the hashes of all entries
	active    []*Bytes         // the key of each active entry, nil for an inactive one
	oldest    int              // no entry before this one is active
	bits      [][]byte         // the active bits of each twig
	full      map[uint64]Bytes // the roots of the entry trees of twigs that no longer change
}

func newTree() *Tree {
	return &Tree{values: map[Bytes]Bytes{}, positions: map[Bytes]uint64{}, full: map[uint64]Bytes{}}
}

func digest(kind string, data []byte) Bytes { return blake3Keyed("stampede/state/2/"+kind, data) }

// apply applies a block's net changes.
func (t *Tree) apply(height uint64, changes []Change) {
	touched, moved := map[link]bool{}, []link{}
	for _, change := range changes {
		each := link{digest("key", []byte(change.key)), change.key}
		place, isLive := slices.BinarySearchFunc(t.ring, each, compareLinks)
		if change.is {
			t.values[change.key] = change.after
			touched[each] = true
		} else {
			t.ring = slices.Delete(t.ring, place, place+1)
			delete(t.values, change.key)
			t.retire(change.key)
		}
		if !isLive {
			t.ring = slices.Insert(t.ring, place, each)
		}
		if !isLive || !change.is {
			moved = append(moved, each)
		}
	}
	for _, each := range moved { // before each key that came or went is one with another next key
		if size := len(t.ring); size > 0 {
			place, _ := slices.BinarySearchFunc(t.ring, each, compareLinks)
			touched[t.ring[(place+size-1)%size]] = true
		}
	}
	ascending := []link{}
	for each := range touched {
		ascending = append(ascending, each)
	}
	slices.SortFunc(ascending, compareLinks)
	for _, each := range ascending {
		t.append(height, each)
	}
	for range 2 * len(ascending) {
		for t.active[t.oldest] == nil {
			t.oldest++
		}
		if len(t.entries)-t.oldest <= len(t.ring)*5/2+slack {
			break
		}
		key := *t.active[t.oldest]
		t.append(height, link{digest("key", []byte(key)), key})
	}
}

// append appends the entry of a live key.
func (t *Tree) append(height uint64, each link) {
	place, _ := slices.BinarySearchFunc(t.ring, each, compareLinks)
	next, value := t.ring[(place+1)%len(t.ring)].hash, t.values[each.key]
	entry := binary.BigEndian.AppendUint64(nil, height)
	entry = binary.BigEndian.AppendUint64(entry, t.retire(each.key))
	entry = append(entry, next...)
	entry = binary.BigEndian.AppendUint16(entry, uint16(len(each.key)))
	entry = binary.BigEndian.AppendUint32(entry, uint32(len(value)))
	entry = append(append(entry, each.key...), value...)
	position := uint64(len(t.entries))
	t.positions[each.key] = position
	t.entries = append(t.entries, digest("entry", entry))
	t.active = append(t.active, &each.key)
	if position%twigEntries == 0 {
		t.bits = append(t.bits, make([]byte, twigEntries/8))
	}
	t.flip(position)
}

// retire makes the active entry of a key inactive; returns its position.
func (t *Tree) retire(key Bytes) uint64 {
	position, ok := t.positions[key]
	if !ok {
		return noPosition
	}
	delete(t.positions, key)
	t.active[position] = nil
	t.flip(position)
	return position
}

// flip changes whether an entry is active.
func (t *Tree) flip(position uint64) {
	t.bits[position/twigEntries][position%twigEntries/8] ^= 1 << (position % 8)
}

// root is the state root.
func (t *Tree) root() Bytes {
	twigs := []Bytes{}
	for number := range t.bits {
		twigs = append(twigs, t.twig(uint64(number)))
	}
	upper := perfect("upper-node", twigs, bits.Len(uint(max(len(twigs)-1, 0))))
	sizes := number8(uint64(len(t.entries))) + number8(uint64(len(t.ring)))
	return digest("root", []byte(sizes+upper))
}

func (t *Tree) twig(number uint64) Bytes {
	root, isFull := t.full[number]
	if !isFull {
		end := min((number+1)*twigEntries, uint64(len(t.entries)))
		root = perfect("entry-node", t.entries[number*twigEntries:end], twigLevels)
		if end == (number+1)*twigEntries {
			t.full[number] = root
		}
	}
	return digest("twig", append([]byte(root), t.bits[number]...))
}

// perfect is the root of the perfect binary tree of this many levels. Leaves after the given ones are zero.
func perfect(kind string, row []Bytes, levels int) Bytes {
	absent := Bytes(make([]byte, 32))
	for range levels {
		above := []Bytes{}
		for i := 0; i < len(row); i += 2 {
			right := absent
			if i+1 < len(row) {
				right = row[i+1]
			}
			above = append(above, digest(kind, []byte(row[i]+right)))
		}
		row, absent = above, digest(kind, []byte(absent+absent))
	}
	if len(row) == 0 {
		return absent
	}
	return row[0]
}
