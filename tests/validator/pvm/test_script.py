"""``builtin:script``: what is a script, what each operation does, and that a bad one does nothing at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from itertools import accumulate

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.validator.chains import ACTOR, ALICE, OTHER, PRICE, Chain, make_genesis, schedule, script
from tests.validator.pvm_cases import BAD, GOOD
from validator.chain.transactions import Call
from validator.primitives import script_json
from validator.primitives.errors import BadScript
from validator.pvm import script as programs


@pytest.mark.parametrize("text", GOOD.values(), ids=list(GOOD))
def test_scripts(text: str) -> None:
    programs.parse(text.encode())


@pytest.mark.parametrize("text", BAD.values(), ids=list(BAD))
def test_bad_scripts(text: str) -> None:
    with pytest.raises(BadScript):
        programs.parse(text.encode())


@pytest.mark.parametrize("payload", [b"\xff", b'[["emit","n","\xed\xa0\x80"]]', b'[["get","\xc3"]]', b"\x00[]"])
def test_bytes_that_are_no_text(payload: bytes) -> None:
    with pytest.raises(BadScript):
        programs.parse(payload)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.binary(max_size=40) | st.text(alphabet='[]{}",:\\u0019dburn -.e', max_size=60).map(str.encode))
def test_whatever_comes_is_a_script_or_a_bad_one(payload: bytes) -> None:
    with suppress(BadScript):
        programs.parse(payload)


def test_a_bad_script_runs_none_of_its_operations_and_costs_what_the_call_costs() -> None:
    chain = Chain()
    payload = b'[["set","k","v"],["burn",500],["burn",-1]]'
    receipt = chain.block(chain.transaction(Call(ACTOR, "run", payload))).receipts.transactions[0]
    assert (receipt.error, receipt.cycles, receipt.cells) == ("BadScript", 1_000, len(payload))
    assert list(chain.view.scan(b"s" + ACTOR)) == []


def test_operations_do_what_they_say() -> None:
    chain = Chain()
    receipt = chain.run(
        ["set", "kéy", "välue"],
        ["set", "other", ""],
        ["get", "missing"],
        ["del", "other"],
        ["emit", "Näme", "däta"],
        ["transfer", {"to": "0x" + OTHER.hex(), "amount": 9}],
        ["burn", 123],
    )
    stored = {key[21:].decode(): value.decode() for key, value in chain.view.scan(b"s" + ACTOR)}
    assert receipt.ok
    assert stored == {"kéy": "välue"}
    assert [(event.name, event.actor, event.fields) for event in receipt.effects.events] == [
        ("Näme", ACTOR, (("data", "däta"),))
    ]
    assert (receipt.cycles - 1_000, receipt.effects.movements[0].amount) == (3 * 200 + 10 + 50 + 200 + 123, b"\x09")


def test_try_catches_rejections_alone() -> None:
    chain = Chain()
    broke = ["transfer", {"to": "0x" + OTHER.hex(), "amount": 2**127}]
    receipt = chain.run(["try", broke], ["try", ["try", broke]], ["try", ["set", "k", "v"]])
    caught = [(event.name, event.actor, event.fields) for event in receipt.effects.events]
    assert receipt.ok
    assert caught == [("ScriptCaught", ACTOR, (("error", "InsufficientBalance"),))] * 2
    assert receipt.cycles == 1_000 + 3 * 200, "the event costs nothing"
    for operation, error in ((["fail", ""], "ScriptFailed"), (["burn", 10**9], "OutOfCycles")):
        assert chain.run(["try", operation]).error == error
    assert chain.run(["try", ["set", "k", "x" * 5_000]], cells_limit=6_000).error == "OutOfCells"
    assert chain.run(["try", ["burn", -1]]).error == "BadScript"


def test_save_as_costs_a_set_and_saved_reads_it_back() -> None:
    chain = Chain()
    receipt = chain.run(schedule(5, save_as="kéy"))
    (timer,) = chain.timers()
    assert (receipt.cycles, receipt.effects.scheduled[0].timer_id) == (1_000 + 1_000 + 200, timer.timer_id)
    stored = chain.world().storage_get(ACTOR, "kéy")
    assert stored == timer.timer_id.hex().encode()
    payload = script(schedule(5, save_as="kéy"))
    assert receipt.cells == len(payload) + len("[]") + len("kéy".encode()) + 64
    assert chain.run(["extend", {"saved": "kéy", "expires_at": timer.expires_at}]).error == "TimerExpiryInvalid"
    receipt = chain.run(["extend", {"saved": "kéy", "expires_at": 10**9}])
    assert (receipt.ok, receipt.cycles) == (True, 1_000 + 10 + 500)
    assert chain.timers()[0].expires_at == 3 + chain.parameters.max_ttl
    receipt = chain.run(["cancel", {"saved": "kéy"}])
    assert (receipt.ok, receipt.cycles) == (True, 1_000 + 10 + 500)
    assert chain.timers() == []
    assert chain.run(["cancel", {"saved": "kéy"}]).error == "NotFound"


@pytest.mark.parametrize("text", ["", "00", "xyz0", "0x" + "00" * 32, "00" * 31, "00" * 33, "é" * 64, "00" * 32])
def test_whatever_names_no_timer_is_not_found(text: str) -> None:
    chain = Chain()
    for operation in (["cancel", {"id": text}], ["extend", {"id": text, "expires_at": 9}]):
        receipt = chain.run(operation)
        assert (receipt.error, receipt.cycles) == ("NotFound", 1_000 + 500)
    receipt = chain.run(["set", "k", text], ["cancel", {"saved": "k"}])
    assert (receipt.error, receipt.cycles) == ("NotFound", 1_000 + 200 + 10 + 500)


def test_a_schedule_that_is_refused_saves_nothing() -> None:
    chain = Chain()
    assert chain.run(["try", schedule(0, save_as="k")]).ok
    assert chain.world().storage_get(ACTOR, "k") is None


def test_payload_forms() -> None:
    chain = Chain()
    given = ["text é", {"hex": "00ff"}, ["é", {"b": 1, "a": [None, True, -5]}]]
    chain.run(*[["schedule", {"in": 1, "payload": payload}] for payload in given])
    expected = ["text é".encode(), b"\x00\xff", b'["\\u00e9",{"b":1,"a":[null,true,-5]}]']
    assert [timer.payload for timer in chain.timers()] == expected
    assert expected[2] == json.dumps(given[2], separators=(",", ":")).encode()


def test_in_counts_from_the_block_and_sender_is_who_called() -> None:
    chain = Chain()
    chain.empty(4)
    chain.run(schedule(3, fee_payer="sender"), timer_allowance=5)
    (timer,) = chain.timers()
    assert (timer.trigger_height, timer.fee_payer, timer.payer_cap, timer.scheduled_at) == (8, ALICE, 5, 5)


@pytest.mark.parametrize(("tier", "factor"), [("economy", 8), ("standard", 10), ("fast", 15), ("urgent", 25)])
def test_a_tier_is_a_multiple_of_the_median_tip(tier: str, factor: int) -> None:
    chain = Chain()
    chain.run(schedule(1, max_fee_per_cycle=2**40, max_priority_fee_per_cycle=1_001))
    chain.block()
    assert chain.globals.p50_tip == 1_001
    chain.run(schedule(1, tier=tier))
    assert [timer.max_priority_fee_per_cycle for timer in chain.timers()] == [1_001 * factor // 10]


def test_a_clamped_priority_is_reported() -> None:
    chain = Chain()
    receipt = chain.run(schedule(1, max_fee_per_cycle=PRICE + 5, max_priority_fee_per_cycle=6))
    (timer,) = chain.timers()
    (event,) = receipt.effects.events
    assert (event.name, event.actor, timer.max_priority_fee_per_cycle) == ("TimerPriorityClampedAtSchedule", ACTOR, 5)
    assert event.fields == (("timer_id", timer.timer_id.hex()), ("stated", "6"), ("clamped", "5"))
    fits = chain.run(schedule(1, max_fee_per_cycle=PRICE + 5, max_priority_fee_per_cycle=5))
    assert fits.effects.events == ()


def test_a_number_of_any_size_in_a_list_payload_is_written_back() -> None:
    big = 10**639
    chain = Chain(make_genesis({"MAX_TIMER_PAYLOAD": 10_000}))
    chain.run(schedule(1, big))
    (timer,) = chain.timers()
    assert chain.payload_of(timer) == json.dumps([big]).encode()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(VALUES)
@example("".join(map(chr, range(0x100))))
@example({chr(code): [10**639, -(10**639), 2**63, 2**64, -(2**63) - 1] for code in (0, 0x1F, 0x7F, 0x80, 0x1F600)})
def test_a_list_payload_is_written_as_the_json_module_writes_it(value: object) -> None:
    assert script_json.canonical_text(value) == json.dumps(value, separators=(",", ":")).encode()


@pytest.mark.parametrize("character", ["\x7f", "é"])
def test_the_faster_encoder_alone_would_write_other_bytes(character: str) -> None:
    assert msgspec.json.encode(character) != script_json.canonical_text(character)


def test_a_parser_without_its_checks_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each strictness of the JSON reader, taken away, lets bad scripts through."""
    for name in ("_check_nesting", "_check_text"):
        with monkeypatch.context() as patched:
            patched.setattr(script_json, name, lambda _value: None)
            assert passing() - {"very deep"}
    with monkeypatch.context() as patched:
        patched.setattr(script_json, "_unique_keys", dict)
        make_decoders_again(patched)
        assert passing()
    with monkeypatch.context() as patched:
        patched.setattr(script_json, "_refuse", lambda _text: 1)
        make_decoders_again(patched)
        assert passing()
    assert not passing()


def make_decoders_again(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(script_json, "_DECODER", script_json._strict_decoder())
    patched.setattr(script_json, "_DECODER_OF_USUAL_INTEGERS", script_json._strict_decoder(int))


NUMBERS = ("0", "-0", "7", "-12", "1" * 640, "-" + "1" * 639, "1" * 641, "-" + "1" * 640, "0.5", "1e3", "01")
TEXTS = ("-0", "1" * 650, "[" * 70, '\\"]', "\\\\", "é")


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    st.lists(
        st.sampled_from(NUMBERS) | st.sampled_from(TEXTS).map('"{}"'.format) | st.integers(1, 66).map(lambda n: "[" * n)
    )
)
def test_the_short_cuts_of_the_parser_change_nothing(parts: list[str]) -> None:
    """Integers are looked at one by one only if one may be refused, and strings without escapes are cut out whole."""
    text = "[" + ",".join(part + "7" + "]" * len(part) if part[0] == "[" else part for part in parts) + "]"
    payload = text.encode()
    assert parsed(script_json.parse, payload) == parsed(parse_the_long_way, payload)


def parsed(parse: Callable[[bytes], object], payload: bytes) -> object:
    try:
        return parse(payload)
    except (BadScript, ValueError):
        return BadScript


def parse_the_long_way(payload: bytes) -> object:
    outside = script_json._STRINGS.sub(b"", payload)
    if max(accumulate((byte in b"[{") - (byte in b"]}") for byte in outside)) > script_json.MAX_NESTING:
        raise BadScript
    return script_json._strict_decoder().decode(payload.decode())


def passing() -> set[str]:
    """Bad scripts that are taken for good ones."""
    found = set()
    for name, text in BAD.items():
        if name == "very deep":
            continue
        try:
            programs.parse(text.encode())
        except BadScript:
            continue
        except UnicodeEncodeError:
            pass  # a lone surrogate was let through, and cannot be written in a list payload
        found.add(name)
    return found
