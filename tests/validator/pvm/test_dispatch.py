"""The ``_handler`` convention: exactly two keys, text and strict base64, or the payload is what it is."""

from __future__ import annotations

import base64
import json
import re
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.validator.chains import ACTOR, Chain, script
from validator.primitives.types import is_name
from validator.pvm.dispatch import resolve_handler

DEFAULT = "handle_timer"


def envelope(handler: object = "h", payload: object = "AAE=") -> str:
    return json.dumps({"_handler": handler, "_payload": payload})


RESOLVED = {
    "plain": (envelope(), "h", b"\x00\x01"),
    "other order": ('{"_payload":"","_handler":"h"}', "h", b""),
    "white space": (' \n{ "_handler" : "h" , "_payload" : "QUJD" } \t', "h", b"ABC"),
    "escaped keys": ('{"\\u005fhandler":"h","_payload":"QUJD"}', "h", b"ABC"),
    "256 bytes": (envelope("é" * 128), "é" * 128, b"\x00\x01"),
    "plus and slash": (envelope("h", "+/+/"), "h", b"\xfb\xff\xbf"),
    "unused bits": (envelope("h", "QR=="), "h", b"A"),
}

LEFT = {
    "not there": "",
    "a list": '["_handler","_payload"]',
    "a text": '"_handler"',
    "no JSON": '{"_handler":"h","_payload":"QUJD"',
    "trailing": envelope() + "x",
    "one key": '{"_handler":"h"}',
    "three keys": '{"_handler":"h","_payload":"QUJD","more":1}',
    "another key": '{"_handler":"h","payload":"QUJD"}',
    "duplicate handler": '{"_handler":"h","_handler":"h"}',
    "duplicate payload": '{"_handler":"h","_payload":"QUJD","_payload":"QUJD"}',
    "handler empty": envelope(""),
    "handler too long": envelope("é" * 128 + "x"),
    "handler a number": envelope(1),
    "handler null": envelope(None),
    "handler a lone surrogate": '{"_handler":"\\ud800","_payload":"QUJD"}',
    "payload a number": envelope("h", 1),
    "payload null": envelope("h", None),
    "payload an object": envelope("h", {}),
    "no padding": envelope("h", "QQ"),
    "half a padding": envelope("h", "QQ="),
    "too much padding": envelope("h", "QUJD="),
    "a quad of padding": envelope("h", "QUJD===="),
    "line break after all": envelope("h", "QUJD").replace("QUJD", "QUJD\\n"),
    "padding first": envelope("h", "=QUJD"),
    "padding within": envelope("h", "QQ==QQ=="),
    "url alphabet": envelope("h", "-_-_"),
    "line break": envelope("h", "QUJD\n"),
    "space": envelope("h", "QU JD"),
    "one letter": envelope("h", "Q"),
    "not ASCII": envelope("h", "QUJÄ"),
    "deep": '{"_handler":"h","_payload":' + "[" * 100_000,
    "form feed before": "\f" + envelope(),
    "byte order mark": "\ufeff" + envelope(),
    "a bare control character": '{"_handler":"h\n","_payload":"QUJD"}',
    "an escape that is none": '{"_handler":"\\x68","_payload":"QUJD"}',
    "a quote too many": '{"_handler":"h"","_payload":"QUJD"}',
}


@pytest.mark.parametrize(("text", "handler", "payload"), RESOLVED.values(), ids=list(RESOLVED))
def test_a_payload_that_names_its_handler(text: str, handler: str, payload: bytes) -> None:
    assert resolve_handler(DEFAULT, text.encode()) == (handler, payload)


@pytest.mark.parametrize("text", LEFT.values(), ids=list(LEFT))
def test_a_payload_that_is_left_as_it_is(text: str) -> None:
    assert resolve_handler(DEFAULT, text.encode()) == (DEFAULT, text.encode())


@pytest.mark.parametrize(
    "payload", [b"\xff", b'{"_handler":"\xff","_payload":""}', b'{"_handler":"h\x00","_payload":""}']
)
def test_bytes_that_are_no_text_are_left(payload: bytes) -> None:
    assert resolve_handler(DEFAULT, payload) == (DEFAULT, payload)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.text(min_size=1, max_size=80).filter(lambda text: text.isprintable()), st.binary(max_size=40))
def test_whatever_was_wrapped_comes_out(handler: str, payload: bytes) -> None:
    wrapped = json.dumps({"_handler": handler, "_payload": base64.b64encode(payload).decode()}).encode()
    assert resolve_handler(DEFAULT, wrapped) == (handler, payload)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.binary(max_size=30).map(lambda tail: b"{" + tail))
def test_whatever_comes_is_resolved_or_left(payload: bytes) -> None:
    assert resolve_handler(DEFAULT, payload) == (DEFAULT, payload)


def by_reading_all_of_it(handler: str, payload: bytes) -> tuple[str, bytes]:
    """The same rule, by a parser of JSON and a pattern for base64."""
    try:
        pairs = json.loads(payload.decode(), object_pairs_hook=list)
    except (ValueError, RecursionError):
        return handler, payload
    if payload.lstrip()[:1] != b"{" or len(pairs) != 2 or {key for key, _ in pairs} != {"_handler", "_payload"}:
        return handler, payload
    name, encoded = dict(pairs)["_handler"], dict(pairs)["_payload"]
    if not isinstance(name, str) or not is_name(name) or not isinstance(encoded, str):
        return handler, payload
    if not re.fullmatch(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", encoded):
        return handler, payload
    return name, base64.b64decode(encoded)


PIECES = (
    *('"_handler"', '"_payload"', '"\\u005fhandler"', '"h"', '"QUJD"', '"QQ=="', '"Q==="', '"é"', '""', '"\\""', '"\\'),
    *("{", "}", ":", ",", " ", "\n", "\f", "1", "null", "[]", "{}", '"', "\\", '"a\\\\"'),
)


@settings(max_examples=600, deadline=None, derandomize=True)
@given(
    st.lists(st.sampled_from(PIECES), max_size=14)
    | st.permutations(['"_handler"', ":", '"h"', ",", '"_payload"', ":", '"QUJD"'])
    | st.tuples(*[st.sampled_from(PIECES)] * 4).map(lambda t: ["{", t[0], ":", t[1], ",", t[2], ":", t[3], "}"])
    | st.tuples(st.sampled_from(PIECES), st.sampled_from(PIECES)).map(
        lambda t: ["{", '"_handler"', ":", t[0], ",", '"_payload"', ":", t[1], "}"]
    )
)
def test_passing_over_finds_what_reading_finds(pieces: list[str]) -> None:
    payload = "".join(pieces).encode()
    assert resolve_handler(DEFAULT, payload) == by_reading_all_of_it(DEFAULT, payload)


@pytest.mark.parametrize(
    "payload",
    [
        b'{"a":[' + b"{}," * 300_000 + b"{}]}",
        b'{"a":"' + b"\\" * 500_000 + b'","b":1}',
        b'{"_handler":"h","_payload":"' + b"A" * 1_000_000 + b'"}x',
        b'{"' + b'\\"' * 500_000,
    ],
)
def test_what_is_passed_over_takes_no_longer_than_its_bytes(payload: bytes) -> None:
    """Nothing pays for it: no more than some steps a byte, by the interpreter's own count of what it does."""
    calls = 0

    def count(_frame: object, _event: str, _argument: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        assert resolve_handler(DEFAULT, payload) == (DEFAULT, payload)
    finally:
        sys.setprofile(None)
    assert calls < 50, "one pass of a pattern, and no parser"


def test_a_wrapped_script_runs_at_the_fire() -> None:
    chain = Chain()
    inner = script(["emit", "inner", "ran"])
    wrapped = json.dumps({"_handler": "h", "_payload": base64.b64encode(inner).decode()})
    chain.run(["schedule", {"in": 1, "payload": wrapped}], ["schedule", {"in": 1, "payload": wrapped + " x"}])
    fires = {fire.sequence: fire for fire in chain.block().receipts.fires}
    assert (fires[0].effects.events[0].name, fires[1].error) == ("inner", "BadScript")
    assert fires[0].actor == ACTOR
