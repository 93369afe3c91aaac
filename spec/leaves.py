"""The leaves of the state tree: each record of the state under its key (``docs/protocol.md``, *State*).

:mod:`spec.tree` makes the root of them. [R-16] A leaf is written when its value at the end of a block is another one
than at the end of the block before.
"""

from __future__ import annotations

from blake3 import blake3

from spec.encoding import Address, Hash, encode, number8, tagged, uint, uint_or_null, written
from spec.timers import DEFAULT_HANDLER
from spec.world import Answer, Naming, Timer, World

LONGEST_PLAIN_KEY = 256
LONGEST_INLINE_PAYLOAD = 1_024
GLOBALS = (
    "next sequence",
    "next message",
    "first message",
    "basefee of the cycle",
    "basefee of the cell",
    "basefee of the lane",
    "p50",
    "last block's cycles",
    "live timers",
    "minted",
    "burned by transactions",
    "burned by fires",
    "burned by fires at the lane price",
    "burned by queries",
)
JOB_COUNTERS = ("first callback", "next callback", "first end", "next end")


def leaves(world: World) -> dict[bytes, bytes]:
    """The whole state by key. [R-01] [R-02] [R-03] A key is there while its record is."""
    found = _accounts(world) | _timers(world) | _auction(world) | _jobs(world)
    for number, message in world.messages.items():
        found[b"m" + number8(number)] = encode(written(message))
    for watch, (digest, watchers) in world.watchable.items():
        found[b"x" + watch.actor + watch.key.encode()] = encode([digest, watchers])
    counters = world.counters | {"live timers": len(world.timers)}
    found[b"g"] = encode([uint(counters.get(name, 0)) for name in GLOBALS])
    return found


def _accounts(world: World) -> dict[bytes, bytes]:
    """[R-20] [R-22] Accounts are there once they were, or were in the genesis, whatever they have."""
    found = {
        b"a" + address: encode([uint(balance), world.nonce.get(address, 0)])
        for address, balance in world.balance.items()
    }
    found |= {b"c" + address: _actor(world, address) for address in world.actors}
    for plain, hashed, table in ((b"s", b"S", world.storage), (b"v", b"V", world.published)):
        for (address, name), value in table.items():
            key, name_before = _named(plain, hashed, address, name)
            found[key] = name_before + value
    for code, source in world.programs.items():
        found[b"P" + bytes.fromhex(code.removeprefix("python:"))] = source.encode()
    return found


def _timers(world: World) -> dict[bytes, bytes]:
    found = {b"t" + timer_id: _timer(timer) for timer_id, timer in world.timers.items()}
    for timer_id, timer in world.timers.items():
        if len(timer.payload) > LONGEST_INLINE_PAYLOAD:
            found[b"T" + timer_id] = timer.payload
        if timer.in_turn:  # as long as one timer depends on it
            priced_at = max(timer.trigger_height, world.genesis.parameters["ACTIVATION_HEIGHT"] + 1)
            found[b"p" + number8(priced_at)] = uint(timer.default_max_fee or 0)
    top = overflow_root(world)
    return found if top is None else found | {b"o": top}


def _auction(world: World) -> dict[bytes, bytes]:
    """[R-15] What agents answered, [R-11] [R-12] [R-19] and what policies keep of fires."""
    found: dict[bytes, bytes] = {}
    for address, asked in world.asked.items():
        own = world.answers.get((address, b""), Answer())
        figures = uint_or_null(own.max_fee), uint_or_null(own.priority)
        found[b"b" + address] = encode([asked.at, asked.unpaid_at, own.since, *figures])
    for (address, agent), answer in world.answers.items():
        if agent:
            figures = uint_or_null(answer.max_fee), uint_or_null(answer.priority)
            found[b"B" + address + agent] = encode([*figures, answer.since])
    found |= {b"W" + address: encode(weight) for address, weight in world.weights.items()}
    found |= {b"f" + number8(height): encode([fires]) for height, fires in world.fires.items()}
    if world.bias_rate:
        found[b"l"] = encode([uint(figure) for figure in world.bias_rate[""]])
    if world.median:
        found[b"M"] = uint(world.median[""])
    return found


def _named(plain: bytes, hashed: bytes, address: Address, name: str) -> tuple[bytes, bytes]:
    """[R-04] The key of a named value, and what precedes the value: the name, if only its hash is in the key."""
    raw = name.encode()
    if len(raw) <= LONGEST_PLAIN_KEY:
        return plain + address + raw, b""
    return hashed + address + tagged(b"storage key", raw), len(raw).to_bytes(4, "big") + raw


def _actor(world: World, address: Address) -> bytes:
    actor = world.actors[address]
    agent = None if actor.agent is None else [actor.agent.code, uint(actor.agent.max_fee), uint(actor.agent.priority)]
    counts = (table.get(address, 0) for table in (world.schedule_nonce, world.live_timers, world.mailbox_bytes))
    fields = [actor.code, actor.deployer, *counts, agent]
    naming: Naming | None = world.namings.get(address)
    return encode(fields if naming is None else [*fields, naming])


def _timer(timer: Timer) -> bytes:
    """[R-05] [R-06] A live timer without its id, and without what is as usual.

    Its payload is apart if it is long, and the default agent's max fee is in the record of the block that supplied it
    to all.
    """
    supplied = None if timer.in_turn else timer.default_max_fee
    fields = [
        timer.actor,
        timer.trigger_height,
        timer.sequence,
        None if timer.handler == DEFAULT_HANDLER else timer.handler,
        None if len(timer.payload) > LONGEST_INLINE_PAYLOAD else timer.payload,
        None if timer.fee_payer == timer.actor else timer.fee_payer,
        timer.gas_limit,
        timer.expires_at,
        *map(uint_or_null, (timer.max_fee, timer.priority, timer.payer_cap, supplied)),
        timer.scheduled_at,
    ]
    last = [timer.bidding_agent, uint_or_null(timer.bid), timer.watch]
    while last and last[-1] is None:
        last.pop()
    return encode(fields + last)


def _jobs(world: World) -> dict[bytes, bytes]:
    found = {b"j" + job_id: encode(job) for job_id, job in world.jobs.items()}
    found |= {b"J" + job_id: payload for job_id, payload in world.job_payloads.items()}
    found |= {b"r" + job_id + runner: result for (job_id, runner), result in world.results.items()}
    found |= {b"q" + number8(number): encode(callback) for number, callback in world.callbacks.items()}
    found |= {b"e" + number8(number): encode(end) for number, end in world.job_ends.items()}
    found |= {b"k" + address: encode(counts) for address, counts in world.actor_jobs.items()}
    found |= {b"w" + runner: b"" for runner in world.runners}
    if world.counters.get("next end", 0):
        found[b"n"] = encode([world.counters.get(name, 0) for name in JOB_COUNTERS])
    return found


def tier_of(world: World, timer: Timer) -> str:
    """Where a timer waits after the block: in the ``ring``, the ``epoch`` queue or the ``overflow`` tree."""
    p, height = world.genesis.parameters, world.height
    if timer.trigger_height <= height + 1 or timer.is_watching:
        return "ring"
    epochs_away = timer.trigger_height // p["EPOCH_LENGTH"] - height // p["EPOCH_LENGTH"]
    tier = "ring" if epochs_away <= 0 else "epoch" if epochs_away <= p["EPOCH_HORIZON"] else "overflow"
    if timer.trigger_height < timer.scheduled_at + p["RING_BUFFER_SIZE"]:
        world.reached("R-17", tier == "overflow")
        return "ring"
    world.reached({"ring": "R-18", "epoch": "R-14", "overflow": "R-13"}[tier])
    return tier


def overflow_root(world: World) -> Hash | None:
    """[R-13] The root of the overflow tree, a radix tree by trigger height and sequence; ``None`` if it is empty."""
    far = [timer for timer in world.timers.values() if tier_of(world, timer) == "overflow"]
    if not far:
        return None
    entries = sorted((number8(timer.trigger_height) + number8(timer.sequence), timer.timer_id) for timer in far)
    return _tree(entries, 0)


def _tree(entries: list[tuple[bytes, Hash]], bit: int) -> Hash:
    """The hash of a tree of ascending entries, which agree in all bits before ``bit``."""
    if len(entries) == 1:
        ((key, timer_id),) = entries
        return blake3(b"stampede/overflow/leaf" + key + timer_id).digest()
    first, last = entries[0][0], entries[-1][0]
    while not _bit(first, bit) ^ _bit(last, bit):
        bit += 1
    left = [entry for entry in entries if not _bit(entry[0], bit)]
    children = _tree(left, bit + 1) + _tree(entries[len(left) :], bit + 1)
    return blake3(b"stampede/overflow/branch" + bytes((bit,)) + children).digest()


def _bit(key: bytes, bit: int) -> int:
    return key[bit // 8] >> 7 - bit % 8 & 1
