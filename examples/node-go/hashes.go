package main

import (
	"encoding/binary"
	"math/bits"
)

// This file is the chapter "Hashes" of spec/encoding.py. Go's standard library has neither hash: its SHA-3 pads in
// another way than Keccak-256, and it has no BLAKE3.

// --- Keccak-256 ------------------------------------------------------------------------------------------------------

const keccakRate = 136

var keccakRounds, keccakTurns = keccakTables()

// keccakTables computes the 24 round constants, and the turns of the 25 lanes, as FIPS 202 defines them.
func keccakTables() (rounds [24]uint64, turns [25]int) {
	register := byte(1)
	for i := range rounds {
		for j := 0; j < 7; j++ {
			if register&1 == 1 {
				rounds[i] |= 1 << (1<<j - 1)
			}
			overflow := register >> 7
			register = register<<1 ^ overflow*0x71
		}
	}
	for x, y, t := 1, 0, 0; t < 24; t++ {
		turns[x+5*y] = (t + 1) * (t + 2) / 2 % 64
		x, y = y, (2*x+3*y)%5
	}
	return rounds, turns
}

// keccakPermute is Keccak-f[1600] on lanes at x + 5y.
func keccakPermute(a *[25]uint64) {
	for _, constant := range keccakRounds {
		var columns [5]uint64
		var moved [25]uint64
		for x := range columns {
			columns[x] = a[x] ^ a[x+5] ^ a[x+10] ^ a[x+15] ^ a[x+20]
		}
		for i := range a {
			x, y := i%5, i/5
			lane := a[i] ^ columns[(x+4)%5] ^ bits.RotateLeft64(columns[(x+1)%5], 1)
			moved[y+5*((2*x+3*y)%5)] = bits.RotateLeft64(lane, keccakTurns[i])
		}
		for i := range a {
			row := i / 5 * 5
			a[i] = moved[i] ^ ^moved[row+(i+1)%5]&moved[row+(i+2)%5]
		}
		a[0] ^= constant
	}
}

// keccak is Keccak-256 as in Ethereum, of the parts one after the other.
func keccak(parts ...Bytes) Bytes {
	data := []byte(join(parts))
	data = append(data, 1)
	data = append(data, make([]byte, (keccakRate-len(data)%keccakRate)%keccakRate)...)
	data[len(data)-1] |= 0x80
	var lanes [25]uint64
	for ; len(data) > 0; data = data[keccakRate:] {
		for i := 0; i < keccakRate/8; i++ {
			lanes[i] ^= binary.LittleEndian.Uint64(data[8*i:])
		}
		keccakPermute(&lanes)
	}
	out := make([]byte, 32)
	for i := range 4 {
		binary.LittleEndian.PutUint64(out[8*i:], lanes[i])
	}
	return Bytes(out)
}

// --- BLAKE3 ----------------------------------------------------------------------------------------------------------

const (
	chunkStart, chunkEnd, isParent, isRoot, isKeyed = 1, 2, 4, 8, 16
	blockBytes, chunkBytes                          = 64, 1024
)

var (
	blake3Start = [8]uint32{
		0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
	}
	blake3Order = [16]int{2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8}
	blake3Mixes = [8][4]int{
		{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15},
		{0, 5, 10, 15}, {1, 6, 11, 12}, {2, 7, 8, 13}, {3, 4, 9, 14},
	}
)

// blake3Compress returns the chaining value after a block of at most 64 bytes.
func blake3Compress(value [8]uint32, block []byte, counter uint64, flags uint32) [8]uint32 {
	var padded [blockBytes]byte
	copy(padded[:], block)
	var words, permuted [16]uint32
	for i := range words {
		words[i] = binary.LittleEndian.Uint32(padded[4*i:])
	}
	s := [16]uint32{
		value[0], value[1], value[2], value[3], value[4], value[5], value[6], value[7],
		blake3Start[0], blake3Start[1], blake3Start[2], blake3Start[3],
		uint32(counter), uint32(counter >> 32), uint32(len(block)), flags,
	}
	for round := 0; ; round++ {
		for i, at := range blake3Mixes {
			a, b, c, d := s[at[0]], s[at[1]], s[at[2]], s[at[3]]
			a += b + words[2*i]
			d = bits.RotateLeft32(d^a, -16)
			c += d
			b = bits.RotateLeft32(b^c, -12)
			a += b + words[2*i+1]
			d = bits.RotateLeft32(d^a, -8)
			c += d
			b = bits.RotateLeft32(b^c, -7)
			s[at[0]], s[at[1]], s[at[2]], s[at[3]] = a, b, c, d
		}
		if round == 6 {
			break
		}
		for i, from := range blake3Order {
			permuted[i] = words[from]
		}
		words = permuted
	}
	for i := range value {
		value[i] = s[i] ^ s[i+8]
	}
	return value
}

// blake3Tree returns the chaining value over data whose first chunk has this number.
func blake3Tree(key [8]uint32, data []byte, first uint64, flags uint32) [8]uint32 {
	if len(data) > chunkBytes {
		left := chunkBytes << (bits.Len(uint((len(data)-1)/chunkBytes)) - 1)
		var node [blockBytes]byte
		keep := flags &^ isRoot
		a := blake3Tree(key, data[:left], first, keep)
		b := blake3Tree(key, data[left:], first+uint64(left/chunkBytes), keep)
		putWords(node[:32], a)
		putWords(node[32:], b)
		return blake3Compress(key, node[:], 0, flags|isParent)
	}
	value, mark := key, uint32(chunkStart)
	for len(data) > blockBytes {
		value = blake3Compress(value, data[:blockBytes], first, flags&^isRoot|mark)
		data, mark = data[blockBytes:], 0
	}
	return blake3Compress(value, data, first, flags|mark|chunkEnd)
}

func putWords(out []byte, words [8]uint32) {
	for i, word := range words {
		binary.LittleEndian.PutUint32(out[4*i:], word)
	}
}

// blake3 is the 32-byte hash of data.
func blake3(data Bytes) Bytes {
	var out [32]byte
	putWords(out[:], blake3Tree(blake3Start, []byte(data), 0, isRoot))
	return Bytes(out[:])
}

// blake3Keyed is the 32-byte hash in keyed mode, under a text that is filled up with zeros to 32 bytes.
func blake3Keyed(text string, data []byte) Bytes {
	var padded, out [32]byte
	copy(padded[:], text)
	var key [8]uint32
	for i := range key {
		key[i] = binary.LittleEndian.Uint32(padded[4*i:])
	}
	putWords(out[:], blake3Tree(key, data, 0, isRoot|isKeyed))
	return Bytes(out[:])
}

// tagged is BLAKE3 over the tag's length in one byte, the tag and the data.
func tagged(tag string, data Bytes) Bytes {
	return blake3(Bytes([]byte{byte(len(tag))}) + Bytes(tag) + data)
}

// merkleRoot is the root over a list. An odd last node moves up a level unchanged. The root covers the length.
func merkleRoot(name string, contents []Bytes) Bytes {
	level := []Bytes{}
	for _, content := range contents {
		level = append(level, tagged(name+"/leaf", content))
	}
	for len(level) > 1 {
		above := []Bytes{}
		for i := 0; i+1 < len(level); i += 2 {
			above = append(above, tagged(name+"/node", level[i]+level[i+1]))
		}
		level = append(above, level[2*len(above):]...)
	}
	return tagged(name+"/root", number8(uint64(len(contents)))+join(level))
}
