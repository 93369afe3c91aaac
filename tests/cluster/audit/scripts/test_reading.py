"""The auditor reads scripts and envelopes as the chain does, whatever the bytes are."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.audit.scripts import reading
from cluster.audit.scripts.reading import Burn, Chosen, Extend, Schedule, Try, handler_input, read_script
from loadgen.workloads.limits import BAD_SCRIPTS
from validator.primitives.errors import BadScript
from validator.pvm import script
from validator.pvm.dispatch import resolve_handler

WORDS = (
    *("burn", "get", "set", "del", "emit", "fail", "transfer", "send", "try", "schedule", "cancel", "extend", "other"),
    *("to", "amount", "handler", "payload", "cycles", "cells", "height", "in", "tier", "bid", "save_as", "id", "saved"),
    *("expires_at", "fee_payer", "payer_cap", "gas_limit", "urgent", "self", "sender", "hex", "00", "0x" + "ab" * 20),
)


def is_read(payload: bytes) -> bool:
    try:
        script.parse(payload)
    except BadScript:
        return False
    return True


def read_afresh(payload: bytes) -> reading.Script | None:
    """The script as read from a payload with spaces behind it, since long ones are not remembered."""
    return read_script(payload + b" " * (reading.MAX_REMEMBERED_BYTES + 1))


def value(random: Random, depth: int) -> Any:
    """A JSON value that is close to a script."""
    match random.randrange(9 if depth else 5):
        case 0 | 1:
            return random.choice(WORDS)
        case 2:
            return random.choice([None, True, 1.5])
        case 3 | 4:
            return random.choice([-1, 0, 1, 10**30])
        case 5 | 6:
            return {random.choice(WORDS): value(random, depth - 1) for _ in range(random.randrange(5))}
        case _:
            return [random.choice(WORDS), *(value(random, depth - 1) for _ in range(random.randrange(3)))]


def call(random: Random) -> list[Any]:
    """An operation with arguments that are mostly right."""
    known: dict[str, Any] = {
        "to": "0x" + "ab" * 20,
        "amount": 1,
        "handler": "run",
        "payload": "x",
        "in": 1,
        "height": 5,
        "expires_at": 9,
        "saved": "k",
        "id": "00",
    }
    drawn = {name: known[name] for name in random.sample(sorted(known), random.randrange(1, 7))}
    if random.random() < 0.5:
        drawn[random.choice(WORDS)] = value(random, 2)
    operation = [random.choice(("transfer", "send", "schedule", "cancel", "extend")), drawn]
    return ["try", operation] if random.random() < 0.2 else operation


def test_it_refuses_what_the_chain_refuses() -> None:
    random, counts = Random(1), {True: 0, False: 0}
    for _ in range(20_000):
        drawn = call(random) if random.random() < 0.7 else value(random, 3)
        payload = json.dumps([drawn], ensure_ascii=random.random() < 0.5).encode()
        assert (read_script(payload) is not None) == is_read(payload), payload
        counts[is_read(payload)] += 1
    assert min(counts.values()) > 1_000


def test_a_list_within_a_script_is_read_like_its_text() -> None:
    random, counts = Random(2), {True: 0, False: 0}
    for number in range(2_000):
        drawn = [call(random) if random.random() < 0.7 else value(random, 3)]
        drawn.append(["set", f"\x7fé{number}", '"\\\n\U0001f600'])
        if isinstance(drawn[0], list) and random.random() < 0.2:
            drawn = [["schedule", {"in": 1, "payload": drawn}]]
        within = read_script(json.dumps([["schedule", {"in": 1, "payload": drawn}]]).encode())
        if within is None:
            continue  # it is no JSON of scripts
        assert isinstance(within[0], Schedule)
        payload = within[0].payload
        assert payload == json.dumps(drawn, separators=(",", ":")).encode()
        remembered, read = read_script(payload), read_afresh(payload)
        assert remembered == read, payload
        counts[read is not None] += 1
    assert min(counts.values()) > 300


def test_a_forgotten_script_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "REMEMBERED", 2)
    for number in (*range(9), *range(9)):
        assert read_script(b'[["burn",%d]]' % number) == (Burn(number),)
    assert read_script(b'[["burn",0,0]]') is read_script(b'[["burn",0,0]]') is None


@pytest.mark.parametrize("payload", BAD_SCRIPTS)
def test_bad_scripts_are_bad(payload: bytes) -> None:
    assert read_script(payload) is None
    assert not is_read(payload)


def test_what_operations_say() -> None:
    given = b'[["try",["burn",7]],["schedule",{"in":2,"payload":[["burn",1]],"fee_payer":"self","tier":"fast","x":1}]]'
    nothing = dict.fromkeys(Schedule.__struct_fields__)
    scheduled = Schedule(
        **{
            **nothing,
            "blocks_ahead": 2,
            "payload": b'[["burn",1]]',
            "handler": "handle_timer",
            "tier": 2,
        }  # type: ignore[arg-type]
    )
    assert read_script(given) == (Try(Burn(7)), scheduled)
    assert read_script(b'[["extend",{"saved":"k","expires_at":9}]]') == (Extend(Chosen(b"", "k"), 9),)
    assert read_script(b"[]") == ()


@given(
    st.one_of(
        st.binary(max_size=40),
        st.builds(
            lambda a, b: json.dumps({"_handler": a, "_payload": b}).encode(),
            st.text(max_size=4),
            st.text("AB=+/é ", max_size=9),
        ),
    )
)
def test_envelopes_are_opened_where_the_chain_opens_them(payload: bytes) -> None:
    assert handler_input(payload) == resolve_handler("h", payload)[1]


@pytest.mark.parametrize(
    ("payload", "inner"),
    [
        (b'{"_handler":"h","_payload":"AAE="}', b"\x00\x01"),
        (b' {"_payload" : "", "_handler":"h"}\n', b""),
        (b'{"_handler":"","_payload":"AAE="}', None),
        (b'{"_handler":"h","_handler":"h","_payload":"AAE="}', None),
        (b'{"_handler":"h","_payload":"AAE"}', None),
        (b'{"_handler":"h","_payload":"QQQQ="}', None),
        (b'{"_handler":"h","_payload":"QQQQ===="}', None),
        (b'{"_handler":"h","_payload":"===="}', None),
        (b'{"_handler":"h","_payload":1}', None),
        ('{"_handler":"h","_payload":"AAE="}'.encode("utf-16"), None),
        (b"[" * 100_000, None),
    ],
)
def test_envelopes(payload: bytes, inner: bytes | None) -> None:
    expected = payload if inner is None else inner
    assert handler_input(payload) == expected == resolve_handler("h", payload)[1]
