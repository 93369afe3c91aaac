"""Compiled loops of the packed engine: BLAKE3 over many messages at once, the ordered index, records, the tree.

The functions work on plain arrays, without blocks or views; :mod:`validator.state.engines.packed` holds the arrays and
calls them. Numba compiles each function at its first call, which takes about ten seconds in all, and caches the code
next to this file, or else in the user's cache, if that is writable. The cache is safe because all functions are in this
one file, whose time and size decide whether it is valid. There is no interpreted fallback: without numba the plain
engine (:mod:`validator.state.engines.plain`) does the same work with the same results, and tests compare both.

*Hashing.* Messages of up to 1,024 bytes (one BLAKE3 chunk) at any address are hashed sixteen at a time, one per lane: a
vector of the processor holds the same word of sixteen messages. The whole compression is written with such vectors
(:func:`_compress`), because the compiler does not vectorize loops over lanes.

*Index.* A sorted array with gaps: keys by the first 8 bytes of their hashes, each at or after the place that its hash
maps to, without a gap between that place and the key. So a key is found as in a hash table with linear probing, and its
neighbours in the ring are its neighbours in the array. Keys with equal 8 bytes are ordered by the whole hash.

*Records.* Each live key has a slot, and each slot a record in the arena, in units of 8 bytes: position (48 bits),
length of the key (16), length of the value (32), key, value; numbers are little-endian. Freed records are in lists by
size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, cast

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from validator.primitives.compiled import Function, dispatcher_of

Array = np.ndarray[Any, Any]
Int = Any
"""An integer whose width numba infers."""

LANES: Final = 16
BLOCK_BYTES: Final = 64
MESSAGE_BYTES_LIMIT: Final = 1024
HASH_WORDS: Final = 8

EMPTY: Final = 0xFFFFFFFF
"""The number that represents the absence of a slot or record."""
RECORD_HEAD_BYTES: Final = 12
UNIT_BYTES: Final = 8
POSITION_BITS: Final = 48
POSITION_MASK: Final = (1 << POSITION_BITS) - 1
NO_RECORD_POSITION: Final = POSITION_MASK
"""The position in the record of a new key, which has no entry yet."""

ENTRY_HEAD_BYTES: Final = 54
TWIG_LEVELS: Final = 11
TWIG_ENTRIES: Final = 2048
TWIG_BYTES: Final = 288
"""Size of a twig's row: its entry root and its active bits."""
GROUP_LEVELS: Final = 5
TWIG_GROUPS: Final = 64
"""Number of groups of 32 entries per twig, whose roots are kept."""

SIZE_CLASSES: Final = 640

NEXT_POSITION: Final = 0
LIVE: Final = 1
OLDEST: Final = 2
BUMP: Final = 3
SLOTS_USED: Final = 4
SLOTS_FREE: Final = 5
CAPACITY: Final = 6
TOP: Final = 7
"""Number of the counter that holds the highest place used in the index since the index was made."""
FIRST_TWIG: Final = 8
REPLAYED_FROM: Final = 9
"""Number of the counter that holds the position of the first replayed entry."""
COUNTERS: Final = 10

AHEAD: Final = 64
"""Number of entries of the log whose replaced records are prefetched together during a replay."""

NOTHING: Final = 0
UPDATE: Final = 1
INSERT: Final = 2
DELETE: Final = 3


def inlined(function: Function) -> Function:
    """Decorator: compile a function, and inline it into each caller.

    A call would pass every one of :class:`Arrays` on the stack, which takes longer than most of these functions.
    """
    return dispatcher_of(function, forceinline=True)


class Pieces(NamedTuple):
    """The keys or the values of a batch, concatenated: their bytes, start offsets and lengths."""

    octets: Array
    starts: Array
    lengths: Array
    """Lengths; -1 for a deleted value."""


class Lanes(NamedTuple):
    """Scratch memory for hashing sixteen messages at once."""

    words: Array
    """Chaining values, block lengths and flags of sixteen messages: ten rows of sixteen words."""
    addresses: Array
    """Addresses of the sixteen blocks, i64."""
    spare: Array
    """One block per lane, as bytes."""


class Arrays(NamedTuple):
    """The arrays of one engine."""

    prefixes: Array
    """First 8 bytes of the key's hash, for each place of the index, u64."""
    places: Array
    """The key's slot, for each place of the index, u32; ``EMPTY`` in a gap."""
    offsets: Array
    """Offset of each slot's record in the arena, in units, u32."""
    free_slots: Array
    words: Array
    """The arena as u64."""
    halves: Array
    """The arena as u32."""
    octets: Array
    """The arena as bytes."""
    free_records: Array
    """First free record by size class, u32."""
    window: Array
    """Slot of the key whose entry is at a position, for active positions only, u32. It is a ring buffer: its index is
    the position modulo its length."""
    twigs: Array
    """Entry root and active bits of each twig, one row of bytes each, from ``FIRST_TWIG`` on."""
    groups: Array
    """Roots of the groups of 32 entries, one row of words each, from ``FIRST_TWIG`` on. Those of incomplete groups are
    undefined."""
    dirty: Array
    """For each twig, 1 if its row changed since its hash was computed, else 0."""
    counters: Array
    mask: Array
    """Mask of the significant bits of a hash prefix, one u64. All bits are set, except in tests of equal prefixes."""
    key_words: Array
    """The BLAKE3 key for hashes of state keys, as words."""
    lanes: Lanes
    scratch: Array
    """Scratch memory for hashing one key: one block of it, then its hash, as bytes."""


_IV: Final = np.array(
    [0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19], dtype=np.uint32
)


def _schedule() -> Array:
    """The BLAKE3 message schedule: for each round, the index of the message word that each half step adds."""
    permutation = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8]
    rows = [list(range(16))]
    while len(rows) < 7:
        rows.append([rows[-1][i] for i in permutation])
    return np.array(rows, dtype=np.int64)


_SCHEDULE: Final = _schedule()
_CORNERS: Final = np.array(
    [
        [0, 4, 8, 12],
        [1, 5, 9, 13],
        [2, 6, 10, 14],
        [3, 7, 11, 15],
        [0, 5, 10, 15],
        [1, 6, 11, 12],
        [2, 7, 8, 13],
        [3, 4, 9, 14],
    ]
)
"""For each step of a BLAKE3 round, the indices of the four state words that it mixes."""


# --- instructions that the language does not have -------------------------------------------------------------------


def instruction(generator: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator for a function that generates machine code. The compiler puts that code in place of each call."""
    return cast(Callable[..., Any], intrinsic(generator))


_BUILDING: Final[Any] = cgutils
_WORD: Final = ir.IntType(32)
_VECTOR: Final = ir.VectorType(_WORD, LANES)
"""Type of a vector that holds the same word of sixteen messages, one per lane."""


def _vector(value: int) -> ir.Constant:
    return ir.Constant(_VECTOR, [value] * LANES)


def _turned(builder: ir.IRBuilder, vector: ir.Value, bits: int) -> ir.Value:
    """Rotate all words right."""
    return builder.or_(builder.lshr(vector, _vector(bits)), builder.shl(vector, _vector(32 - bits)))


def _transposed(builder: ir.IRBuilder, rows: Sequence[ir.Value]) -> list[ir.Value]:
    """Transpose sixteen vectors of sixteen words, by interleaving the two halves of the rows four times."""
    low = ir.Constant(_VECTOR, [i // 2 + i % 2 * LANES for i in range(LANES)])
    high = ir.Constant(_VECTOR, [8 + i // 2 + i % 2 * LANES for i in range(LANES)])
    for _ in range(4):
        pairs = list(zip(rows[:8], rows[8:], strict=True))
        rows = [builder.shuffle_vector(*pair, order) for pair in pairs for order in (low, high)]
    return list(rows)


def _mixed(builder: ir.IRBuilder, values: Sequence[ir.Value], message: Sequence[ir.Value], last: Any) -> list[ir.Value]:
    """Generate the seven rounds of BLAKE3, and return the 8 new words of the chaining values.

    ``values`` are their former words, ``message`` the block's words, ``last`` the block's lengths and flags.
    """
    state = [*values, *(_vector(int(word)) for word in _IV[:4]), _vector(0), _vector(0), *last]
    for step in range(7 * len(_CORNERS)):
        a, b, c, d = _CORNERS[step % 8].tolist()
        for half in range(2):
            word = message[_SCHEDULE[step // 8, 2 * (step % 8) + half]]
            state[a] = builder.add(builder.add(state[a], state[b]), word)
            state[d] = _turned(builder, builder.xor(state[d], state[a]), 16 >> half)
            state[c] = builder.add(state[c], state[d])
            state[b] = _turned(builder, builder.xor(state[b], state[c]), 7 if half else 12)
    return [builder.xor(low, high) for low, high in zip(state[:8], state[8:], strict=True)]


def _data_of(context: Any, builder: ir.IRBuilder, kind: Any, array: ir.Value) -> ir.Value:
    return context.make_array(kind)(context, builder, array).data


def _without_owner(context: Any, builder: ir.IRBuilder, kind: Any, value: ir.Value) -> ir.Value:
    """Generate an array, or a tuple of arrays, with the same data, for which Numba counts no references."""
    if isinstance(kind, types.BaseTuple):
        kinds: Any = kind
        for i, each in enumerate(kinds):
            part = _without_owner(context, builder, each, builder.extract_value(value, i))
            value = builder.insert_value(value, part, i)
        return value
    if not isinstance(kind, types.Array):
        return value
    array = context.make_array(kind)(context, builder, value)
    array.meminfo = _BUILDING.get_null_value(array.meminfo.type)
    array.parent = _BUILDING.get_null_value(array.parent.type)
    return array._getvalue()


@instruction
def _borrowed(_: Any, value: Any) -> Any:
    """Return an array, or a tuple of arrays, without reference counting. The caller must keep the arrays alive.

    With counting, each access to an array of a tuple increments and decrements a counter atomically, which takes longer
    than the access.
    """

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return _without_owner(context, builder, signature.args[0], arguments[0])

    return value(value), generate


@instruction
def _compress(_: Any, lanes: Any, addresses: Any) -> Any:
    """Hash the block at each of 16 addresses into the chaining values, which are rows 0 to 7 of ``lanes``.

    Rows 8 and 9 are the blocks' lengths and flags. Lanes with zero flags keep their values.
    """

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        rows, blocks = (_data_of(context, builder, *each) for each in zip(signature.args, arguments, strict=True))
        pointer, number = _VECTOR.as_pointer(), ir.IntType(64)
        places = [builder.bitcast(builder.gep(rows, [number(LANES * i)]), pointer) for i in range(10)]
        values = [builder.load(place, align=4) for place in places]
        starts = [builder.load(builder.gep(blocks, [number(lane)])) for lane in range(LANES)]
        message = _transposed(builder, [builder.load(builder.inttoptr(start, pointer), align=1) for start in starts])
        found = _mixed(builder, values[:8], message, values[8:])
        is_meant = builder.icmp_unsigned("!=", values[9], _vector(0))
        for place, before, after in zip(places, values, found, strict=False):
            builder.store(builder.select(is_meant, after, before), place, align=4)
        return context.get_dummy_value()

    return types.void(lanes, addresses), generate


@instruction
def _copy(_: Any, source: Any, start: Any, target: Any, at: Any, count: Any) -> Any:
    """Copy bytes between places that do not overlap."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        source, start, target, at, count = arguments
        here = builder.gep(_data_of(context, builder, signature.args[0], source), [start])
        there = builder.gep(_data_of(context, builder, signature.args[2], target), [at])
        _BUILDING.raw_memcpy(builder, there, here, count, 1)
        return context.get_dummy_value()

    return types.void(source, types.int64, target, types.int64, types.int64), generate


@instruction
def _read_word(_: Any, octets: Any, at: Any) -> Any:
    """Read the big-endian number of 8 bytes at an offset."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        place = builder.gep(_data_of(context, builder, signature.args[0], arguments[0]), [arguments[1]])
        return builder.bswap(builder.load(builder.bitcast(place, ir.IntType(64).as_pointer()), align=1))

    return types.uint64(octets, types.int64), generate


@instruction
def _write_word(_: Any, octets: Any, at: Any, value: Any) -> Any:
    """Write a number as 8 big-endian bytes at an offset."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        place = builder.gep(_data_of(context, builder, signature.args[0], arguments[0]), [arguments[1]])
        builder.store(builder.bswap(arguments[2]), builder.bitcast(place, ir.IntType(64).as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(octets, types.int64, types.uint64), generate


@instruction
def _fetch(_: Any, words: Any, at: Any) -> Any:
    """Prefetch a word into the cache, without waiting for it."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        place = builder.gep(_data_of(context, builder, signature.args[0], arguments[0]), [arguments[1]])
        place = builder.bitcast(place, ir.IntType(8).as_pointer())
        call = builder.module.declare_intrinsic(
            "llvm.prefetch", [place.type], ir.FunctionType(ir.VoidType(), [place.type, _WORD, _WORD, _WORD])
        )
        builder.call(call, [place, _WORD(1), _WORD(3), _WORD(1)])  # for writing, into all caches, as data
        return context.get_dummy_value()

    return types.void(words, types.int64), generate


# --- hashing --------------------------------------------------------------------------------------------------------


@dispatcher_of
def _begin_block(
    octets: Array, starts: Array, lengths: Array, first: Int, count: Int, block: Int, lanes: Lanes
) -> None:
    """Put block ``block`` of the messages from ``first`` on into the lanes; incomplete blocks are padded."""
    lanes = _borrowed(lanes)
    base = octets.ctypes.data
    spare = lanes.spare.ctypes.data
    for lane in range(16):
        lanes.addresses[lane] = spare
        lanes.words[8 * 16 + lane] = np.uint32(0)
        lanes.words[9 * 16 + lane] = np.uint32(0)
    for lane in range(count):
        start = starts[first + lane] + block * 64
        rest = lengths[first + lane] - block * 64
        if lengths[first + lane] > 1024 or (rest <= 0 and block):
            continue
        if rest >= 64:
            lanes.addresses[lane] = base + start
        else:
            for i in range(64):
                lanes.spare[lane * 64 + i] = 0
            _copy(octets, start, lanes.spare, lane * 64, rest)
            lanes.addresses[lane] = spare + lane * 64
        lanes.words[8 * 16 + lane] = np.uint32(min(rest, 64))
        lanes.words[9 * 16 + lane] = np.uint32(16 | (1 if block == 0 else 0) | (2 | 8 if rest <= 64 else 0))


@dispatcher_of
def hash_messages(
    octets: Array, starts: Array, lengths: Array, key: Array, out: Array, places: Array, lanes: Lanes
) -> None:
    """Hash many messages with keyed BLAKE3. Message ``i`` has ``lengths[i]`` bytes from byte ``starts[i]`` on.

    Its hash is stored in row ``places[i]`` of ``out``. The hash of a message of more than 1,024 bytes is undefined.
    """
    lanes = _borrowed(lanes)
    total = len(starts)
    for first in range(0, total, 16):
        count = min(16, total - first)
        blocks = np.int64(1)
        for lane in range(count):
            if lengths[first + lane] <= 1024:
                blocks = max(blocks, (lengths[first + lane] + 63) // 64)
        for row in range(8):
            for lane in range(16):
                lanes.words[row * 16 + lane] = key[row]
        for block in range(blocks):
            _begin_block(octets, starts, lengths, first, count, block, lanes)
            _compress(lanes.words, lanes.addresses)
        for lane in range(count):
            for row in range(8):
                out[places[first + lane], row] = lanes.words[row * 16 + lane]


@dispatcher_of
def _hash_pairs(nodes: Array, first: Int, count: Int, key: Array, out: Array, out_first: Int, lanes: Lanes) -> None:
    """The parents of ``2 * count`` neighbouring nodes from row ``first`` on."""
    lanes = _borrowed(lanes)
    base = nodes.ctypes.data
    for lane in range(16):
        lanes.words[8 * 16 + lane] = np.uint32(64)
        lanes.words[9 * 16 + lane] = np.uint32(27)
    for done in range(0, count, 16):
        width = min(16, count - done)
        for row in range(8):
            for lane in range(16):
                lanes.words[row * 16 + lane] = key[row]
        for lane in range(16):
            lanes.addresses[lane] = base + (first + 2 * (done + min(lane, width - 1))) * 32
        _compress(lanes.words, lanes.addresses)
        for lane in range(width):
            for row in range(8):
                out[out_first + done + lane, row] = lanes.words[row * 16 + lane]


# --- records --------------------------------------------------------------------------------------------------------


@dispatcher_of
def _size_class(units: Int) -> tuple[Int, Int]:
    """The size class of a record: the number of its list of free records, and the size of that list's records."""
    if units <= 256:
        return units, units
    shift = 0
    while (units - 1) >> shift >= 16:
        shift += 1
    mantissa = ((units - 1) >> shift) + 1
    return 256 + shift * 16 + mantissa, mantissa << shift


@dispatcher_of
def _units(key_bytes: Int, value_bytes: Int) -> Int:
    return (12 + key_bytes + value_bytes + 7) >> 3


@inlined
def _take_record(arrays: Arrays, units: Int) -> Int:
    """A free record of at least ``units`` units."""
    number, size = _size_class(units)
    head = np.int64(arrays.free_records[number])
    if head != 0xFFFFFFFF:
        arrays.free_records[number] = arrays.halves[2 * head]
        return head
    at = arrays.counters[3]
    arrays.counters[3] = at + size
    return at


@inlined
def _free_record(arrays: Arrays, at: Int) -> None:
    key_bytes, value_bytes = _lengths(arrays, at)
    number, _ = _size_class(_units(key_bytes, value_bytes))
    arrays.halves[2 * at] = arrays.free_records[number]
    arrays.free_records[number] = np.uint32(at)


@inlined
def _lengths(arrays: Arrays, at: Int) -> tuple[Int, Int]:
    """Lengths of key and value in the record at ``at``."""
    return np.int64(arrays.words[at] >> np.uint64(48)), np.int64(arrays.halves[2 * at + 2])


@inlined
def _position(arrays: Arrays, at: Int) -> Int:
    return np.int64(arrays.words[at] & np.uint64(0xFFFFFFFFFFFF))


@inlined
def _set_head(arrays: Arrays, at: Int, position: Int, key_bytes: Int, value_bytes: Int) -> None:
    arrays.words[at] = np.uint64(position) | (np.uint64(key_bytes) << np.uint64(48))
    arrays.halves[2 * at + 2] = np.uint32(value_bytes)


@inlined
def _set_value(arrays: Arrays, slot: Int, values: Array, start: Int, value_bytes: Int) -> None:
    """Change the value of a slot's record, in place if it fits into the same size class."""
    at = np.int64(arrays.offsets[slot])
    key_bytes, old_bytes = _lengths(arrays, at)
    position = _position(arrays, at)
    if _size_class(_units(key_bytes, value_bytes))[0] != _size_class(_units(key_bytes, old_bytes))[0]:
        new = _take_record(arrays, _units(key_bytes, value_bytes))
        _copy(arrays.octets, at * 8 + 12, arrays.octets, new * 8 + 12, key_bytes)
        _free_record(arrays, at)
        at = new
        arrays.offsets[slot] = np.uint32(at)
    _set_head(arrays, at, position, key_bytes, value_bytes)
    _copy(values, start, arrays.octets, at * 8 + 12 + key_bytes, value_bytes)


@inlined
def _new_slot(arrays: Arrays) -> Int:
    if arrays.counters[5]:
        arrays.counters[5] -= 1
        return np.int64(arrays.free_slots[arrays.counters[5]])
    arrays.counters[4] += 1
    return arrays.counters[4] - 1


@inlined
def _new_record(
    arrays: Arrays, keys: Array, key_start: Int, key_bytes: Int, values: Array, start: Int, value_bytes: Int
) -> Int:
    """Allocate a slot and a record for a new key and its value. The key has no entry yet."""
    slot = _new_slot(arrays)
    at = _take_record(arrays, _units(key_bytes, value_bytes))
    arrays.offsets[slot] = np.uint32(at)
    _set_head(arrays, at, 0xFFFFFFFFFFFF, key_bytes, value_bytes)
    _copy(keys, key_start, arrays.octets, at * 8 + 12, key_bytes)
    _copy(values, start, arrays.octets, at * 8 + 12 + key_bytes, value_bytes)
    arrays.counters[1] += 1
    return slot


@inlined
def _drop_slot(arrays: Arrays, slot: Int) -> None:
    _free_record(arrays, np.int64(arrays.offsets[slot]))
    arrays.free_slots[arrays.counters[5]] = np.uint32(slot)
    arrays.counters[5] += 1
    arrays.counters[1] -= 1


@inlined
def _save(arrays: Arrays, at: Int, undo: Array, cursor: Int, is_new: bool) -> Int:
    """Copy a record to the undo data; of a new key's record only the key. Returns the next cursor."""
    key_bytes, value_bytes = _lengths(arrays, at)
    _copy(arrays.octets, at * 8, undo, cursor, 12 + key_bytes + (0 if is_new else value_bytes))
    if is_new:
        for i in range(6):
            undo[cursor + i] = 255
        value_bytes = 0
        for i in range(4):
            undo[cursor + 8 + i] = 0
    return cursor + _units(key_bytes, value_bytes) * 8


# --- the index ------------------------------------------------------------------------------------------------------


@inlined
def _prefix(hashes: Array, start: Int, mask: Array) -> Int:
    return _read_word(hashes, start) & mask[0]


@dispatcher_of
def _home(prefix: Int, capacity: Int) -> Int:
    return np.int64(((prefix >> np.uint64(32)) * np.uint64(capacity)) >> np.uint64(32))


@inlined
def _same_key(arrays: Arrays, at: Int, keys: Array, start: Int, count: Int) -> bool:
    if np.int64(arrays.words[at] >> np.uint64(48)) != count:
        return False
    base = at * 8 + 12
    for i in range(count):  # noqa: SIM110
        if arrays.octets[base + i] != keys[start + i]:
            return False
    return True


@dispatcher_of
def _turn(value: Int, bits: Int) -> Int:
    """Rotate a word right."""
    return ((value >> np.uint64(bits)) | (value << np.uint64(32 - bits))) & np.uint64(0xFFFFFFFF)


@dispatcher_of
def _hash_record(arrays: Arrays, at: Int) -> None:
    """Hash the key of one record into the last 32 bytes of the scratch memory.

    It is needed only if two keys have equal hash prefixes. The code is short, because every lookup contains it.
    """
    key_bytes = _lengths(arrays, at)[0]
    words, state = arrays.scratch.view(np.uint32), np.empty(16, dtype=np.uint64)
    value = arrays.key_words.astype(np.uint64)
    mask = np.uint64(0xFFFFFFFF)
    for start in range(0, key_bytes, 64):
        rest = key_bytes - start
        for i in range(64):
            arrays.scratch[i] = arrays.octets[at * 8 + 12 + start + i] if i < rest else 0
        for i in range(8):
            state[i] = value[i]
            state[8 + i] = np.uint64(_IV[i]) if i < 4 else np.uint64(0)
        state[14] = np.uint64(min(rest, 64))
        state[15] = np.uint64(16 | (1 if start == 0 else 0) | (10 if rest <= 64 else 0))
        for step in range(56):
            a, b, c, d = _CORNERS[step & 7]
            for half in range(2):
                word = np.uint64(words[_SCHEDULE[step >> 3, 2 * (step & 7) + half]])
                state[a] = (state[a] + state[b] + word) & mask
                state[d] = _turn(state[d] ^ state[a], 16 >> half)
                state[c] = (state[c] + state[d]) & mask
                state[b] = _turn(state[b] ^ state[c], 7 if half else 12)
        for i in range(8):
            value[i] = state[i] ^ state[8 + i]
    for i in range(8):
        words[16 + i] = np.uint32(value[i])


@inlined
def _find(
    arrays: Arrays, prefix: Int, keys: Array, start: Int, count: Int, hashes: Array, hash_start: Int
) -> tuple[Int, bool]:
    """Find a key in the index. Returns its place and ``True``, or the place where it belongs and ``False``."""
    place = _home(prefix, arrays.counters[6])
    while arrays.places[place] != np.uint32(0xFFFFFFFF):
        found = arrays.prefixes[place]
        if found > prefix:
            return place, False
        if found == prefix:
            at = np.int64(arrays.offsets[arrays.places[place]])
            if _same_key(arrays, at, keys, start, count):
                return place, True
            _hash_record(arrays, at)
            for i in range(32):
                other, mine = arrays.scratch[64 + i], hashes[hash_start + i]
                if other != mine:
                    if other > mine:
                        return place, False
                    break
        place += 1
    return place, False


@inlined
def _find_key(arrays: Arrays, keys: Pieces, i: Int, hashes: Array) -> tuple[Int, bool]:
    """Find the key of batch item ``i`` in the index, as :func:`_find` does."""
    prefix = _prefix(hashes, i * 32, arrays.mask)
    return _find(arrays, prefix, keys.octets, keys.starts[i], keys.lengths[i], hashes, i * 32)


@inlined
def _put(arrays: Arrays, place: Int, prefix: Int, slot: Int) -> None:
    """Insert a key into the index at the place that :func:`_find` gave. Keys from there to the next gap move up."""
    gap = place
    while arrays.places[gap] != np.uint32(0xFFFFFFFF):
        gap += 1
    arrays.counters[7] = max(arrays.counters[7], gap)
    while gap > place:
        arrays.places[gap] = arrays.places[gap - 1]
        arrays.prefixes[gap] = arrays.prefixes[gap - 1]
        gap -= 1
    arrays.places[place] = np.uint32(slot)
    arrays.prefixes[place] = prefix


@inlined
def _take(arrays: Arrays, place: Int) -> None:
    """Remove the key at a place of the index. Keys after it move down as far as their hashes allow."""
    capacity = arrays.counters[6]
    after = place + 1
    while arrays.places[after] != np.uint32(0xFFFFFFFF) and _home(arrays.prefixes[after], capacity) < after:
        arrays.places[after - 1] = arrays.places[after]
        arrays.prefixes[after - 1] = arrays.prefixes[after]
        after += 1
    arrays.places[after - 1] = np.uint32(0xFFFFFFFF)


@inlined
def _next_place(arrays: Arrays, place: Int) -> Int:
    """The place in the index of the next key in the ring. At least one key must exist."""
    place += 1
    top = arrays.counters[7]
    while place <= top:
        if arrays.places[place] != np.uint32(0xFFFFFFFF):
            return place
        place += 1
    place = 0
    while arrays.places[place] == np.uint32(0xFFFFFFFF):
        place += 1
    return place


@inlined
def _last_place_below(arrays: Arrays, place: Int) -> Int:
    """The last occupied place of the index below a place, or the last of all. At least one key must exist."""
    place -= 1
    while place >= 0:
        if arrays.places[place] != np.uint32(0xFFFFFFFF):
            return place
        place -= 1
    place = arrays.counters[7]
    while arrays.places[place] == np.uint32(0xFFFFFFFF):
        place -= 1
    return place


@dispatcher_of
def find_one(arrays: Arrays, key: Array, key_hash: Array) -> tuple[Int, bool]:
    """Place of one key in the index, and whether it is there."""
    arrays = _borrowed(arrays)
    return _find(arrays, _prefix(key_hash, 0, arrays.mask), key, 0, len(key), key_hash, 0)


@dispatcher_of
def slot_below(arrays: Arrays, key: Array, key_hash: Array) -> Int:
    """The slot of the key before a hash in the ring. At least one key must exist."""
    arrays = _borrowed(arrays)
    place, _ = _find(arrays, _prefix(key_hash, 0, arrays.mask), key, 0, len(key), key_hash, 0)
    return np.int64(arrays.places[_last_place_below(arrays, place)])


@dispatcher_of
def rebuild_index(old_places: Array, old_prefixes: Array, places: Array, prefixes: Array, capacity: Int) -> Int:
    """Copy an index into a larger or smaller one with this capacity. Returns the highest place used."""
    last = -1
    for i in range(len(old_places)):
        if old_places[i] != np.uint32(0xFFFFFFFF):
            last = max(last + 1, _home(old_prefixes[i], capacity))
            places[last] = old_places[i]
            prefixes[last] = old_prefixes[i]
    return last


@dispatcher_of
def spread_top(places: Array, prefixes: Array, capacity: Int) -> Int:
    """The highest place that :func:`rebuild_index` would use."""
    last = -1
    for i in range(len(places)):
        if places[i] != np.uint32(0xFFFFFFFF):
            last = max(last + 1, _home(prefixes[i], capacity))
    return last


@dispatcher_of
def slots_with_prefix(arrays: Arrays, prefix: Array) -> Array:
    """The slots of all keys with a prefix."""
    arrays = _borrowed(arrays)
    found = np.empty(arrays.counters[1], dtype=np.uint32)
    count = 0
    for place in range(arrays.counters[7] + 1):
        slot = arrays.places[place]
        if slot == np.uint32(0xFFFFFFFF):
            continue
        at = np.int64(arrays.offsets[slot])
        if _lengths(arrays, at)[0] < len(prefix):
            continue
        matches = True
        for i in range(len(prefix)):
            if arrays.octets[at * 8 + 12 + i] != prefix[i]:
                matches = False
                break
        if matches:
            found[count] = slot
            count += 1
    return found[:count]


# --- one block ------------------------------------------------------------------------------------------------------


@dispatcher_of
def approach(arrays: Arrays, hashes: Array, order: Array, near: Array) -> Int:
    """Prefetch the data that :func:`lookup` and the next steps read for a batch's keys and their ring successors.

    Each pass is a short loop, so the processor handles many cache misses at once. The other functions would wait for
    them one by one. ``near`` is scratch memory of two rows. The result only keeps the compiler from removing the reads.
    """
    arrays = _borrowed(arrays)
    seen = np.uint64(0)
    here, behind = near[0], near[1]
    for j in range(len(order)):
        here[j] = _home(_prefix(hashes, order[j] * 32, arrays.mask), arrays.counters[6])
    for j in range(len(order)):
        seen ^= arrays.prefixes[here[j]] ^ np.uint64(arrays.places[here[j]])
    for j in range(len(order)):
        prefix = _prefix(hashes, order[j] * 32, arrays.mask)
        place = here[j]
        while arrays.places[place] != np.uint32(0xFFFFFFFF) and arrays.prefixes[place] < prefix:
            place += 1
        here[j] = arrays.places[place]
        place += 1
        top = arrays.counters[7]
        while place <= top and arrays.places[place] == np.uint32(0xFFFFFFFF):
            place += 1
        behind[j] = arrays.places[place]
    slots = arrays.counters[4]
    for j in range(len(order)):
        here[j] = arrays.offsets[here[j] if here[j] < slots else 0]
        behind[j] = arrays.offsets[behind[j] if behind[j] < slots else 0]
    last = len(arrays.words) - 1
    for j in range(len(order)):
        seen ^= arrays.words[min(here[j], last)] ^ arrays.words[min(here[j] + 8, last)]
        seen ^= arrays.words[min(behind[j], last)]
    return seen


@dispatcher_of
def lookup(
    arrays: Arrays,
    keys: Pieces,
    values: Pieces,
    hashes: Array,
    order: Array,
    actions: Array,
    found: Array,
    found_places: Array,
) -> tuple[Int, Int]:
    """Look up the keys of a batch, and write the action for each to ``actions``. Returns the numbers of added and
    removed keys.

    ``order`` sorts the keys by hash prefix, and is changed to sort them by whole hash. The slots of found keys are
    written to ``found``, their places in the index to ``found_places``.
    """
    arrays, keys, values = _borrowed(arrays), _borrowed(keys), _borrowed(values)
    for i in range(1, len(order)):
        j = i
        while j and _is_below(hashes, order[j], order[j - 1], arrays.mask):
            order[j], order[j - 1] = order[j - 1], order[j]
            j -= 1
    inserts = deletes = 0
    for i in order:
        place, is_there = _find_key(arrays, keys, i, hashes)
        if not is_there:
            actions[i] = 0 if values.lengths[i] < 0 else 2
            inserts += actions[i] == 2
            continue
        found[i] = arrays.places[place]
        found_places[i] = place
        if values.lengths[i] < 0:
            actions[i] = 3
            deletes += 1
            continue
        at = np.int64(arrays.offsets[found[i]])
        key_bytes, value_bytes = _lengths(arrays, at)
        is_same = value_bytes == values.lengths[i]
        base = at * 8 + 12 + key_bytes
        if is_same:
            for j in range(value_bytes):
                if arrays.octets[base + j] != values.octets[values.starts[i] + j]:
                    is_same = False
                    break
        actions[i] = 0 if is_same else 1
    return inserts, deletes


@dispatcher_of
def _is_below(hashes: Array, a: Int, b: Int, mask: Array) -> bool:
    for i in range(32):
        if hashes[a * 32 + i] != hashes[b * 32 + i]:
            return bool(hashes[a * 32 + i] < hashes[b * 32 + i])
    return False


@dispatcher_of
def change_ring(
    arrays: Arrays,
    keys: Pieces,
    values: Pieces,
    hashes: Array,
    order: Array,
    actions: Array,
    found: Array,
    deleted: Array,
    undo: Array,
) -> Int:
    """Remove the deleted keys, then add the new ones; returns the length of the undo data."""
    arrays, keys, values = _borrowed(arrays), _borrowed(keys), _borrowed(values)
    cursor = count = 0
    for i in order:
        if actions[i] == 3:
            place, _ = _find_key(arrays, keys, i, hashes)
            at = np.int64(arrays.offsets[found[i]])
            cursor = _save(arrays, at, undo, cursor, False)
            deleted[count] = _position(arrays, at)
            _clear_bit(arrays, deleted[count])
            count += 1
            _take(arrays, place)
            _drop_slot(arrays, found[i])
    for i in order:
        if actions[i] == 2:
            place, _ = _find_key(arrays, keys, i, hashes)
            slot = _new_record(
                arrays, keys.octets, keys.starts[i], keys.lengths[i], values.octets, values.starts[i], values.lengths[i]
            )
            _put(arrays, place, _prefix(hashes, i * 32, arrays.mask), slot)
            found[i] = slot
            cursor = _save(arrays, np.int64(arrays.offsets[slot]), undo, cursor, True)
    return cursor


@dispatcher_of
def touched_places(
    arrays: Arrays,
    keys: Pieces,
    hashes: Array,
    order: Array,
    actions: Array,
    found_places: Array,
    is_same_ring: bool,
    touched: Array,
    items: Array,
) -> Int:
    """Find the keys that get a new entry. Their places in the index are written to ``touched``, and counted.

    First come the keys with a new value; their batch items are written to ``items``. Then come the predecessors of
    added or removed keys, with item -1. A place may be listed twice.
    """
    arrays, keys = _borrowed(arrays), _borrowed(keys)
    count = 0
    for i in order:
        if actions[i] == 1 or actions[i] == 2:
            if not is_same_ring:
                found_places[i], _ = _find_key(arrays, keys, i, hashes)
            touched[count] = found_places[i]
            items[count] = i
            count += 1
    if arrays.counters[1] == 0 or is_same_ring:
        return count
    for i in order:
        if actions[i] == 2 or actions[i] == 3:
            if actions[i] == 3:
                found_places[i], _ = _find_key(arrays, keys, i, hashes)
            touched[count] = _last_place_below(arrays, found_places[i])
            items[count] = -1
            count += 1
    return count


@dispatcher_of
def measure(arrays: Arrays, touched: Array, items: Array, value_lengths: Array, next_slots: Array) -> tuple[Int, Int]:
    """Compute the sizes, in bytes, of the entries to be appended and of their undo data.

    The slots of the next keys in the ring are written to ``next_slots``.
    """
    arrays = _borrowed(arrays)
    entries = undone = 0
    for j in range(len(touched)):
        place = touched[j]
        key_bytes, value_bytes = _lengths(arrays, np.int64(arrays.offsets[arrays.places[place]]))
        undone += _units(key_bytes, value_bytes) * 8
        entries += 54 + key_bytes + (value_lengths[items[j]] if items[j] >= 0 else value_bytes)
        next_slots[j] = arrays.places[_next_place(arrays, place)]
    return entries, undone


@dispatcher_of
def key_spans(arrays: Arrays, slots: Array, starts: Array, lengths: Array) -> None:
    """Write the start offset in the arena, and the length, of each slot's key to ``starts`` and ``lengths``."""
    arrays = _borrowed(arrays)
    for j in range(len(slots)):
        at = np.int64(arrays.offsets[slots[j]])
        lengths[j] = _lengths(arrays, at)[0]
        starts[j] = at * 8 + 12


@dispatcher_of
def find_slots(arrays: Arrays, slots: Array, hashes: Array, touched: Array) -> None:
    """Write the place in the index of each slot's key to ``touched``. ``hashes`` are the keys' hashes."""
    arrays = _borrowed(arrays)
    for j in range(len(slots)):
        at = np.int64(arrays.offsets[slots[j]])
        prefix = _prefix(hashes, j * 32, arrays.mask)
        key_bytes = _lengths(arrays, at)[0]
        touched[j], _ = _find(arrays, prefix, arrays.octets, at * 8 + 12, key_bytes, hashes, j * 32)


@dispatcher_of
def append_entries(
    arrays: Arrays,
    height: Int,
    touched: Array,
    items: Array,
    values: Pieces,
    next_hashes: Array,
    section: Array,
    sizes: Array,
    undo: Array,
    undo_cursor: Int,
) -> Int:
    """Append an entry for the key at each place of the index in ``touched``.

    The encoded entries are written to ``section``, their sizes to ``sizes``. Returns the end of the undo data.
    """
    arrays, values = _borrowed(arrays), _borrowed(values)
    cursor = 0
    for j in range(len(touched)):
        slot = np.int64(arrays.places[touched[j]])
        at = np.int64(arrays.offsets[slot])
        previous = _position(arrays, at)
        is_new = previous == 0xFFFFFFFFFFFF
        if not is_new:
            undo_cursor = _save(arrays, at, undo, undo_cursor, False)
            _clear_bit(arrays, previous)
            if items[j] >= 0:
                _set_value(arrays, slot, values.octets, values.starts[items[j]], values.lengths[items[j]])
                at = np.int64(arrays.offsets[slot])
        key_bytes, value_bytes = _lengths(arrays, at)
        _set_head(arrays, at, arrays.counters[0], key_bytes, value_bytes)
        arrays.window[arrays.counters[0] % len(arrays.window)] = np.uint32(slot)
        _set_bit(arrays, arrays.counters[0])
        arrays.counters[0] += 1
        _write_word(section, cursor, np.uint64(height))
        _write_word(section, cursor + 8, np.uint64(0xFFFFFFFFFFFFFFFF) if is_new else np.uint64(previous))
        _write_word(section, cursor + 46, (np.uint64(key_bytes) << np.uint64(32)) | np.uint64(value_bytes))
        _copy(next_hashes, j * 32, section, cursor + 16, 32)  # after the lengths, whose word overlaps the hash
        _copy(arrays.octets, at * 8 + 12, section, cursor + 54, key_bytes + value_bytes)
        sizes[j] = 54 + key_bytes + value_bytes
        cursor += sizes[j]
    return undo_cursor


@dispatcher_of
def choose_oldest(arrays: Arrays, limit: Int, steps: Int, chosen: Array) -> Int:
    """Choose the oldest active entries that compaction appends again, at most ``steps``.

    Their slots are written to ``chosen``. Returns their number.
    """
    arrays = _borrowed(arrays)
    count = 0
    position = raise_oldest(arrays, arrays.counters[2])
    while count < steps and position < arrays.counters[0]:
        if arrays.counters[0] + count - position <= limit:
            break
        chosen[count] = arrays.window[position % len(arrays.window)]
        count += 1
        position = raise_oldest(arrays, position + 1)
    return count


@dispatcher_of
def raise_oldest(arrays: Arrays, position: Int) -> Int:
    """The first active position at or after ``position``; the next position if there is none."""
    arrays = _borrowed(arrays)
    end = arrays.counters[0]
    first = arrays.counters[8]
    while position < end:
        row = (position >> 11) - first
        offset = position & 2047
        bits = arrays.twigs[row, 32 + (offset >> 3)] >> np.uint8(offset & 7)
        if bits & 1:
            return position
        position = (position | 7) + 1 if bits == 0 else position + 1
    return end


# --- the tree -------------------------------------------------------------------------------------------------------


@inlined
def _set_bit(arrays: Arrays, position: Int) -> None:
    row, offset = (position >> 11) - arrays.counters[8], position & 2047
    arrays.twigs[row, 32 + (offset >> 3)] |= np.uint8(1 << (offset & 7))
    arrays.dirty[row] = 1


@inlined
def _clear_bit(arrays: Arrays, position: Int) -> None:
    row, offset = (position >> 11) - arrays.counters[8], position & 2047
    if row >= 0:
        arrays.twigs[row, 32 + (offset >> 3)] &= np.uint8(255 ^ (1 << (offset & 7)))
        arrays.dirty[row] = 1


@dispatcher_of
def extend_leaves(
    arrays: Arrays, first: Int, rows: Array, other: Array, count: Int, frontier: Array, absent: Array, key: Array
) -> tuple[Int, Int, bool]:
    """Hash new leaves from position ``first`` on up to the entry roots of their twigs, and update the frontier.

    ``rows`` holds the leaves after one spare node; ``other`` is scratch memory of the same size. Returns the first
    twig, the number of twigs, and whether their roots are in ``other`` instead of ``rows``.
    """
    arrays = _borrowed(arrays)
    start, after = first, first + count
    swapped = False
    for level in range(11):
        here, there = (other, rows) if swapped else (rows, other)
        if level == 5:
            begin = start - (arrays.counters[8] << 6)
            arrays.groups[begin : begin + count] = here[1 : count + 1]
        begin = 1
        if start & 1:
            start -= 1
            begin = 0
            here[0] = frontier[level]
            count += 1
        complete = after >> level
        if complete & 1:
            frontier[level] = here[begin + complete - 1 - start]
        if count & 1:
            here[begin + count] = absent[level]
            count += 1
        _hash_pairs(here, begin, count >> 1, key, there, 1, arrays.lanes)
        start >>= 1
        count >>= 1
        swapped = not swapped
    return start, count, swapped


@dispatcher_of
def hash_levels(levels: Array, count: Int, key: Array, lanes: Lanes) -> None:
    """Hash all levels of a tree. ``levels`` begins with ``count`` nodes, a power of two; their parents follow, and so
    on."""
    lanes = _borrowed(lanes)
    start = 0
    while count > 1:
        _hash_pairs(levels, start, count >> 1, key, levels, start + count, lanes)
        start += count
        count >>= 1


@dispatcher_of
def hash_group(data: Array, ends: Array, nodes: Array, entry_key: Array, node_key: Array, lanes: Lanes) -> Int:
    """Find the ends of up to 32 entries, and hash all nodes of the tree over them. ``nodes`` must be zero at first.

    Returns the length of the longest entry, or -1 if the bytes are not exactly ``len(ends)`` entries. Nothing is hashed
    if the longest entry has more than 1,024 bytes.
    """
    lanes = _borrowed(lanes)
    count = len(ends)
    starts, sizes = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    cursor, most = np.int64(0), np.int64(0)
    for j in range(count):
        if cursor + 54 > len(data):
            return np.int64(-1)
        lengths = _read_word(data, cursor + 46)
        starts[j] = cursor
        sizes[j] = (
            54 + np.int64((lengths >> np.uint64(32)) & np.uint64(0xFFFF)) + np.int64(lengths & np.uint64(0xFFFFFFFF))
        )
        cursor += sizes[j]
        ends[j] = cursor
        most = max(most, sizes[j])
    if cursor != len(data):
        return np.int64(-1)
    if most <= 1024:
        hash_messages(data, starts, sizes, entry_key, nodes, np.arange(count), lanes)
        hash_levels(nodes, 32, node_key, lanes)
    return most


@dispatcher_of
def climb(heap: Array, octets: Array, width: Int, changed: Array, depth: Int, key: Array, lanes: Lanes) -> None:
    """Hash the nodes of the upper tree above the changed twig roots, whose indices are ascending.

    ``heap`` holds the tree over ``width`` leaves, and ``octets`` are its bytes.
    """
    lanes = _borrowed(lanes)
    count = len(changed)
    indexes = changed.copy()
    starts, places = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    lengths = np.full(count, 64, dtype=np.int64)
    for level in range(depth):
        parents = 0
        for i in range(count):
            parent = indexes[i] >> 1
            if parents == 0 or indexes[parents - 1] != parent:
                indexes[parents] = parent
                parents += 1
        count = parents
        for i in range(count):
            starts[i] = ((width >> level) + 2 * indexes[i]) * 32
            places[i] = (width >> (level + 1)) + indexes[i]
        hash_messages(octets, starts[:count], lengths[:count], key, heap, places[:count], lanes)


# --- back, and again ------------------------------------------------------------------------------------------------


@dispatcher_of
def undo_spans(undo: Array, end: Int, starts: Array, lengths: Array) -> Int:
    """Write the start offset and length of each key in the undo data to ``starts`` and ``lengths``.

    Returns the number of keys.
    """
    cursor = count = 0
    while cursor < end:
        key_bytes = np.int64(undo[cursor + 6]) | np.int64(undo[cursor + 7]) << 8
        value_bytes: Int = np.int64(0)
        for i in range(4):
            value_bytes |= np.int64(undo[cursor + 8 + i]) << (8 * i)
        starts[count] = cursor + 12
        lengths[count] = key_bytes
        count += 1
        cursor += _units(key_bytes, value_bytes) * 8
    return count


@dispatcher_of
def take_back(arrays: Arrays, undo: Array, starts: Array, lengths: Array, hashes: Array, end: Int) -> None:
    """Undo a block: restore the former record of every key in the undo data, and drop the positions from ``end`` on."""
    arrays = _borrowed(arrays)
    count = len(starts)
    for j in range(count - 1, -1, -1):
        start, key_bytes = starts[j], lengths[j]
        position: Int = np.int64(0)
        value_bytes: Int = np.int64(0)
        for i in range(6):
            position |= np.int64(undo[start - 12 + i]) << (8 * i)
        for i in range(4):
            value_bytes |= np.int64(undo[start - 4 + i]) << (8 * i)
        prefix = _prefix(hashes, j * 32, arrays.mask)
        place, is_there = _find(arrays, prefix, undo, start, key_bytes, hashes, j * 32)
        if position == 0xFFFFFFFFFFFF:
            slot = np.int64(arrays.places[place])
            _take(arrays, place)
            _drop_slot(arrays, slot)
            continue
        if is_there:
            slot = np.int64(arrays.places[place])
            _set_value(arrays, slot, undo, start + key_bytes, value_bytes)
        else:
            slot = _new_record(arrays, undo, start, key_bytes, undo, start + key_bytes, value_bytes)
            _put(arrays, place, prefix, slot)
        _set_head(arrays, np.int64(arrays.offsets[slot]), position, key_bytes, value_bytes)
        arrays.window[position % len(arrays.window)] = np.uint32(slot)
        _set_bit(arrays, position)
    for position in range(end, arrays.counters[0]):
        _clear_bit(arrays, position)
    arrays.counters[0] = end


@dispatcher_of
def entry_spans(data: Array, start: Int, starts: Array, key_lengths: Array, value_lengths: Array) -> None:
    """Write the start offset of each concatenated encoded entry, and the lengths of its key and value, to the last
    three arguments."""
    for j in range(len(starts)):
        starts[j] = start
        lengths = _read_word(data, start + 46)
        key_lengths[j] = (lengths >> np.uint64(32)) & np.uint64(0xFFFF)
        value_lengths[j] = lengths & np.uint64(0xFFFFFFFF)
        start += 54 + key_lengths[j] + value_lengths[j]


@inlined
def _replay_deleted(arrays: Arrays, position: Int) -> None:
    """Remove the key whose active entry is at a position, unless its entry was not replayed."""
    if position >= arrays.counters[9]:
        _drop_slot(arrays, np.int64(arrays.window[position % len(arrays.window)]))
        _clear_bit(arrays, position)


@inlined
def _approach_replaced(arrays: Arrays, data: Array, starts: Array, first: Int, are_new: bool, slots: Array) -> None:
    """Write the slots of the entries that some entries of the log replace to ``slots``, and prefetch their records.

    The slot is -1 for a new key, and if the replaced entry is at position ``first`` or later. The loops are short, so
    the processor handles many cache misses at once.
    """
    for j in range(len(starts)):
        previous = np.int64(_read_word(data, starts[j] + 8))  # -1 if there is none
        is_known = arrays.counters[9] <= previous < first and not are_new
        slots[j] = np.int64(arrays.window[previous % len(arrays.window)]) if is_known else np.int64(-1)
    for j in range(len(starts)):
        if slots[j] >= 0:
            at = np.int64(arrays.offsets[slots[j]])
            _fetch(arrays.words, at)
            _fetch(arrays.words, at + 8)


@inlined
def _replay_entry(
    arrays: Arrays,
    data: Array,
    start: Int,
    key_bytes: Int,
    value_bytes: Int,
    position: Int,
    are_new: bool,
    slot: Int,
) -> None:
    """Apply one entry of the log. ``slot`` is the slot of its key, or -1 if it was not found yet."""
    previous = np.int64(_read_word(data, start + 8))
    if slot < 0 and previous >= arrays.counters[9] and not are_new:
        slot = np.int64(arrays.window[previous % len(arrays.window)])
    if slot >= 0:
        _clear_bit(arrays, previous)
        _set_value(arrays, slot, data, start + 54 + key_bytes, value_bytes)
    else:
        slot = _new_record(arrays, data, start + 54, key_bytes, data, start + 54 + key_bytes, value_bytes)
    _set_head(arrays, np.int64(arrays.offsets[slot]), position, key_bytes, value_bytes)
    arrays.window[position % len(arrays.window)] = np.uint32(slot)
    if position >= arrays.counters[8] << 11:
        _set_bit(arrays, position)
    arrays.counters[0] = position + 1


@dispatcher_of
def replay_entries(
    arrays: Arrays,
    data: Array,
    starts: Array,
    key_lengths: Array,
    value_lengths: Array,
    positions: Array,
    are_new: bool,
    deleted: Array,
    deleted_after: Array,
) -> None:
    """Apply entries of the log, in order: each replaces the record of its key.

    After ``deleted_after[i]`` entries, the key whose active entry is at ``deleted[i]`` is removed. An entry names the
    position of the entry that it replaces, so no key is looked up, and the index is built once, at the end
    (:func:`sort_equal`). ``are_new`` says that no entry replaces a known one.
    """
    arrays = _borrowed(arrays)
    slots = np.empty(AHEAD, dtype=np.int64)
    gone = 0
    for begin in range(0, len(starts), AHEAD):
        end = min(begin + AHEAD, len(starts))
        _approach_replaced(arrays, data, starts[begin:end], positions[begin], are_new, slots)
        for j in range(begin, end):
            while gone < len(deleted) and deleted_after[gone] <= j:
                _replay_deleted(arrays, deleted[gone])
                gone += 1
            _replay_entry(
                arrays, data, starts[j], key_lengths[j], value_lengths[j], positions[j], are_new, slots[j - begin]
            )
    while gone < len(deleted):
        _replay_deleted(arrays, deleted[gone])
        gone += 1


@dispatcher_of
def active_slots(arrays: Arrays, slots: Array) -> Int:
    """Write the slots of all active entries to ``slots``, in the order of the entries. Returns their number."""
    arrays = _borrowed(arrays)
    count = 0
    position = raise_oldest(arrays, arrays.counters[8] << 11)
    while position < arrays.counters[0] and count < len(slots):
        slots[count] = arrays.window[position % len(arrays.window)]
        count += 1
        position = raise_oldest(arrays, position + 1)
    return count


@dispatcher_of
def sort_equal(arrays: Arrays, prefixes: Array, slots: Array) -> None:
    """Sort slots by the whole hashes of their keys. They are sorted by the hashes' prefixes already."""
    arrays = _borrowed(arrays)
    for i in range(1, len(slots)):
        j = i
        while j and prefixes[j - 1] == prefixes[j] and _is_slot_below(arrays, slots[j], slots[j - 1]):
            slots[j], slots[j - 1] = slots[j - 1], slots[j]
            j -= 1


@dispatcher_of
def _is_slot_below(arrays: Arrays, a: Int, b: Int) -> bool:
    _hash_record(arrays, np.int64(arrays.offsets[a]))
    first = arrays.scratch[64:96].copy()
    _hash_record(arrays, np.int64(arrays.offsets[b]))
    for i in range(32):
        if first[i] != arrays.scratch[64 + i]:
            return bool(first[i] < arrays.scratch[64 + i])
    return False
