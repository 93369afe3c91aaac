"""A fuzzer of the HTTP interfaces: requests of every kind that a client gets wrong, each with the right answers.

Every choice is drawn from one source, so that a seed says which requests were sent. The answers follow from
``docs/http.md``: an oracle here is written from the page and not from the server.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec
from nacl.signing import SigningKey

from tests.cluster.live.web.chain_server import SPENT_NONCES, WAITING, WAITING_NONCE
from tests.hangs import HANGS_AFTER_S
from tests.validator.chains import ACTOR, CHAIN_ID, KEYS, USERS
from tests.validator.executors import wire
from validator.chain.transactions import (
    Call,
    CancelTimer,
    SignedTransaction,
    System,
    Transaction,
    Transfer,
    address_of,
    sign,
    transaction_hash,
)
from validator.primitives.codec import decode, encode

CRLF: Final = b"\r\n"
GROUP_ORDER: Final = 2**252 + 27742317777372353535851937790883648493
SMALL_ORDER_KEYS: Final = tuple(
    bytes.fromhex(text)
    for text in (
        "0100000000000000000000000000000000000000000000000000000000000000",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "0000000000000000000000000000000000000000000000000000000000000080",
        "0000000000000000000000000000000000000000000000000000000000000000",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
        "0100000000000000000000000000000000000000000000000000000000000080",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    )
)
"""Points of order 1, 2, 4 and 8, and other encodings of them: without a check, anybody can sign for them."""

MALFORMED: Final = frozenset({"malformed"})
GARBLED: Final = frozenset({"malformed", "bad_signature", "wrong_chain"})


class Sent(NamedTuple):
    """A request and the answers that are right."""

    kind: str
    data: bytes
    statuses: frozenset[int]
    reasons: tuple[frozenset[str], ...] | None = None
    """Of the transactions in it: the words with which each may be refused."""
    ends: bool = False
    """The connection is of no use afterwards."""
    goes_on: bool = False
    """The client does not close its side even so: more is to come."""
    is_stream: bool = False
    """An answer 200 is a stream, of which the beginning is read."""


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


# --- transactions -----------------------------------------------------------------------------------------------------


def _signed(public_key: bytes, signature: bytes, body: bytes) -> bytes:
    return encode(SignedTransaction(public_key, signature, body))


def _parts(data: bytes) -> SignedTransaction:
    return decode(data, SignedTransaction)


def _transaction(user: int, **fields: Any) -> bytes:
    return wire(fields.pop("nonce", WAITING_NONCE + 1), user=user, **fields)


@dataclass
class HostileTransactions:
    """Transactions that no mempool takes."""

    random: Random

    def draw(self) -> tuple[bytes, frozenset[str]]:
        """One of them, and the words with which it may be refused."""
        kinds: Sequence[Callable[[], tuple[bytes, frozenset[str]]]] = (
            self._garbage,
            self._nested,
            self._cut_or_extended,
            self._flipped,
            self._badly_signed,
            self._small_order,
            self._of_another_chain,
            self._against_a_rule,
            self._again,
        )
        return self.random.choice(kinds)()

    def _good(self) -> bytes:
        return self.random.choice((WAITING, wire(0), wire(SPENT_NONCES, user=1)))

    def _garbage(self) -> tuple[bytes, frozenset[str]]:
        return self.random.randbytes(self.random.choice((0, 1, 3, 40, 400))), MALFORMED

    def _nested(self) -> tuple[bytes, frozenset[str]]:
        depth = self.random.choice((10, 1_000, 20_000))
        return self.random.choice((b"\x91", b"\x81\xa1a", b"\xdd\x00\x00\x00\x01")) * depth + b"\xc0", MALFORMED

    def _cut_or_extended(self) -> tuple[bytes, frozenset[str]]:
        good = self._good()
        if self.random.random() < 0.5:
            return good[: self.random.randrange(len(good))], MALFORMED
        return good + self.random.randbytes(self.random.randrange(1, 9)), MALFORMED

    def _flipped(self) -> tuple[bytes, frozenset[str]]:
        data = bytearray(self._good())
        data[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)
        return bytes(data), GARBLED

    def _badly_signed(self) -> tuple[bytes, frozenset[str]]:
        key, signature, body = (getattr(_parts(self._good()), name) for name in ("public_key", "signature", "body"))
        half, scalar = signature[:32], int.from_bytes(signature[32:], "little")
        wrong = self.random.choice(
            (
                bytes(64),
                b"\xff" * 64,
                half + (scalar + GROUP_ORDER).to_bytes(32, "little"),
                half + bytes(32),
                bytes(32) + signature[32:],
                KEYS[2].sign(body).signature,
            )
        )
        return _signed(key, wrong, body), frozenset({"bad_signature"})

    def _small_order(self) -> tuple[bytes, frozenset[str]]:
        """Signatures that hold for a key of small order if its order is not looked at."""
        key = self.random.choice(SMALL_ORDER_KEYS)
        body = _parts(self._good()).body
        signature = self.random.choice((SMALL_ORDER_KEYS[0], key)) + bytes(32)
        return _signed(key, signature, body), frozenset({"bad_signature"})

    def _of_another_chain(self) -> tuple[bytes, frozenset[str]]:
        body = Transaction(USERS[0], SPENT_NONCES, 1_000, 0, 10**9, 1, 10**9, Transfer(bytes(20)))
        chain = self.random.choice(("other", "", CHAIN_ID + "x", CHAIN_ID.upper()))
        return sign(KEYS[0], chain, body), frozenset({"wrong_chain"})

    def _against_a_rule(self) -> tuple[bytes, frozenset[str]]:
        stranger = SigningKey(self.random.randbytes(32))
        body = Transaction(address_of(bytes(stranger.verify_key)), 0, 1_000, 0, 10**9, 1, 10**9, Transfer(bytes(20)))
        drawn, reason = self.random.choice(
            (
                (lambda: wire(self.random.randrange(SPENT_NONCES)), "stale_nonce"),
                (lambda: wire(self.random.choice((SPENT_NONCES + 256, 2**64 - 1))), "nonce_too_high"),
                (lambda: sign(stranger, CHAIN_ID, body), "unaffordable"),
                (lambda: _transaction(1, value=10**30), "unaffordable"),
                (lambda: _transaction(1, gas_limit=0), "gas_too_low"),
                (lambda: _transaction(1, gas_limit=2**64 - 1), "gas_too_high"),
                (lambda: _transaction(1, cells_limit=2**64 - 1), "cells_too_high"),
                (lambda: _transaction(1, cells_limit=0), "cells_too_low"),
                (lambda: _transaction(1, max_fee_per_cycle=0), "fee_too_low"),
                (lambda: _transaction(1, max_fee_per_cell=1), "fee_too_low"),
                (lambda: _transaction(1, action=System(CancelTimer(bytes(32)))), "not_system_deployer"),
                (lambda: _transaction(1, action=Call(ACTOR, "", b"")), "malformed"),
                (lambda: _transaction(1, action=Transfer(b"short")), "malformed"),
            )
        )
        return drawn(), frozenset({reason})

    def _again(self) -> tuple[bytes, frozenset[str]]:
        if self.random.random() < 0.5:
            return WAITING, frozenset({"already_known"})
        other = wire(WAITING_NONCE, ["burn", self.random.randrange(10**6)], user=1)
        return other, frozenset({"replacement_underpriced"})


# --- requests ---------------------------------------------------------------------------------------------------------


def get(target: str, *headers: bytes, method: bytes = b"GET", body: bytes | None = None) -> bytes:
    """The bytes of a request; ``target`` is not encoded any further."""
    lines = [method + b" " + target.encode() + b" HTTP/1.1", b"Host: x", *headers]
    if body is not None:
        lines.append(b"Content-Length: %d" % len(body))
    return CRLF.join(lines) + CRLF + CRLF + (body or b"")


OK: Final = frozenset({200})
WRONG: Final = frozenset({400})
TAKEN: Final = frozenset({202})
ABSENT: Final = frozenset({404})
NO_HTTP: Final = frozenset({400, 431})
NUMBERS: Final = ("0", "1", "2", "3", "4", "99999", str(2**63 - 1))
NO_NUMBERS: Final = (
    "-1", "+1", "007", "1_0", "1e3", "0x1", "1.5", " 1", "1 ", "", "²", "٣", "1\n", "null", "9" * 19, "9" * 4_000,
    str(2**63), "\x00",
)  # fmt: skip
NO_HEX: Final = (
    "", "0x", "zz" * 32, "ab" * 31 + "a", "ab" * 33, "é" * 64, "ab" * 3_000, "../../etc/passwd", "%", "\x00",
)  # fmt: skip


@dataclass
class HostileRequests:
    """Requests to a server with these pages; of a kind that every server must withstand."""

    random: Random
    pages: Sequence[tuple[str, str]]
    """Method and path of each, the parameters of the path in braces."""
    reads_bodies: frozenset[str] = frozenset()
    """Pages that read a body, whoever asks."""
    kinds: list[Callable[[], Sent]] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    not_there: tuple[str, ...] = ("/",)
    """Paths that other servers of a testnet have."""
    """Paths that were asked for by their own method."""

    def __post_init__(self) -> None:
        self.kinds += [
            self._wrong_method,
            self._no_such_page,
            self._no_http,
            self._wrong_lengths,
            self._bad_chunks,
            self._long_headers,
            self._cut_off,
        ]

    def draw(self) -> Sent:
        return self.random.choice(self.kinds)()

    def _path(self) -> tuple[str, str]:
        method, path = self.random.choice(self.pages)
        for name in ("height", "hash", "address", "id", "key"):
            value = "0x" + "ab" * 20 if name == "address" else "ab" * 32 if name != "height" else "1"
            path = path.replace("{" + name + "}", value)
        return method, path

    def _wrong_method(self) -> Sent:
        method, path = self._path()
        wrong = self.random.choice([each for each in ("PUT", "DELETE", "PATCH", "BREW", "POST") if each != method])
        return Sent("wrong method", get(path, method=wrong.encode()), frozenset({405}))

    def _no_such_page(self) -> Sent:
        odd = (
            *self.not_there,
            "//status",
            "/status/",
            "/Status",
            "/nothing",
            "/blocks/1/2/3",
            "/%00",
            "/é",
            "/a" * 999,
            "/.",
        )
        path = quote(self.random.choice(odd), safe="/%*.")
        return Sent("no such page", get(path), ABSENT)

    def _no_http(self) -> Sent:
        lines = (
            b"HELLO",
            b"GET",
            b"GET /status",
            b"GET /status HTTP/9",
            b"GET /status HTTP/1.1\r\nHost x",
            b"GET /status HTTP/1.1\r\nHost: x\r\nHost: y",
            b"GET /status HTTP/1.1\r\nHost: x\r\nA\x00: b",
            b"GET /st atus HTTP/1.1\r\nHost: x",
            b"GET status HTTP/1.1\r\nHost: x",
            b"GET ftp://x/status HTTP/1.1\r\nHost: x",
            b"GET /status HTTP/1.1\r\nHost: x/y",
            b"GET /status HTTP/2.0\r\nHost: x",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            b"\x00" * 64,
            b"\xff" + self.random.randbytes(self.random.randrange(200)),
        )
        return Sent("no HTTP", self.random.choice(lines) + CRLF + CRLF, NO_HTTP, ends=True)

    def _wrong_lengths(self) -> Sent:
        wrong = (
            [b"Content-Length: -1"],
            [b"Content-Length: +1"],
            [b"Content-Length: 1e3"],
            [b"Content-Length: 0x1"],
            [b"Content-Length: " + b"9" * 5_000],
            [b"Content-Length: 1", b"Content-Length: 2"],
            [b"Transfer-Encoding: gzip"],
            [b"Transfer-Encoding: chunked, chunked"],
            [b"Transfer-Encoding: chunked", b"Content-Length: 1"],
        )
        method, path = self._path()
        return Sent("wrong lengths", get(path, *self.random.choice(wrong), method=method.encode()), WRONG, ends=True)

    def _bad_chunks(self) -> Sent:
        """The body is read, if it is, only once the page wants it: others answer first."""
        chunks = (b"xyz\r\n", b"-1\r\n", b"5\r\nab\r\n0\r\n\r\n", b"FFFFFFFFFFFFFFFFFFFFFF\r\n", b"1;" + b"x" * 70_000)
        method, path = self._path()
        head = get(path, b"Transfer-Encoding: chunked", b"Content-Type: application/json", method=method.encode())
        statuses = NO_HTTP if path in self.reads_bodies else frozenset({200, 202, 400, 401, 404, 410, 431})
        return Sent("bad chunks", head + self.random.choice(chunks), statuses, ends=True)

    def _long_headers(self) -> Sent:
        shape = self.random.randrange(3)
        if shape == 0:
            return Sent("long headers", get("/status", b"A: " + b"x" * 70_000), frozenset({431}), ends=True)
        if shape == 1:
            return Sent("long headers", get("/" + "x" * 70_000), frozenset({431}), ends=True)
        return Sent("many headers", get("/nothing", *[b"A%d: b" % number for number in range(200)]), ABSENT)

    def _cut_off(self) -> Sent:
        method, path = self._path()
        whole = get(path, b"Content-Type: application/json", method=method.encode())
        return Sent("cut off", whole[: self.random.randrange(1, len(whole) - 1)], NO_HTTP, ends=True)


class HostileToValidator(HostileRequests):
    """Requests to a validator's endpoint."""

    def __post_init__(self) -> None:
        self.reads_bodies = frozenset({"/transactions", "/accounts"})
        self.transactions = HostileTransactions(self.random)
        super().__post_init__()
        self.kinds += [*[self._batch] * 4, *[self._page] * 4, *[self._bad_value] * 4, self._bad_body, self._too_much]
        self.kinds += [*[self._stream] * 2, *[self._accounts] * 2]

    def _page(self) -> Sent:
        """What is there, or is not: no wrong request."""
        choice = self.random.choice
        number, digest = choice(NUMBERS), self.random.randbytes(32).hex()
        is_here = 1 <= int(number) <= 4
        path, target, statuses = choice(
            (
                *[
                    (path, path, OK)
                    for path in ("/status", "/genesis", "/parameters", "/validators", "/metrics", "/supply")
                ],
                ("/divergence", "/divergence", ABSENT),
                ("/blocks/{height}", f"/blocks/{number}", OK if is_here else frozenset({200, 404})),
                ("/blocks/{height}/finality", f"/blocks/{number}/finality", frozenset({200, 404})),
                ("/blocks", f"/blocks?from={number}&count={choice(('0', '1', '256'))}&digests={choice('01')}", OK),
                ("/receipts/{hash}", f"/receipts/{digest}", ABSENT),
                ("/receipts/{hash}", f"/receipts/{transaction_hash(wire(0)).hex()}", OK),
                ("/timers/{id}", f"/timers/{digest}", ABSENT),
                ("/accounts/{address}", f"/accounts/0x{digest[:40]}?amounts={choice(('text', 'number'))}", OK),
                ("/proofs/{key}", f"/proofs/{digest[: 2 * self.random.randrange(1, 32)]}", OK),
                ("/proofs/{key}", f"/proofs/ab?height={number}", frozenset({200, 404})),
                ("/events", f"/events?from={number}.{choice(NUMBERS)[:9]}&name={quote(choice(NO_HEX[:4]))}", OK),
            )
        )
        self.seen.add(path)
        accept = (b"application/json", b"application/msgpack", b"*/*", b"", b"\xff")
        return Sent("page", get(target, b"Accept: " + choice(accept)), statuses)

    def _bad_value(self) -> Sent:
        number, text = (quote(self.random.choice(values), safe="") for values in (NO_NUMBERS, NO_HEX))
        query = self.random.choice(
            (
                *[f"/blocks?from={number}&count=1", f"/blocks?from=1&count={number}", "/blocks?from=1&count=257"],
                *[f"/blocks?from=1&count=1&digests={number or '2'}", "/blocks", "/blocks?from=1"],
                *[
                    "/events?from=x" + number,
                    f"/events?actor={text}",
                    "/events?name=" + "n" * 257,
                    "/events?from=1.2.3",
                ],
                *[f"/proofs/ab?height={number}", "/proofs/abc", f"/status?amounts={text or 'x'}"],
                *["/proofs/" + "ab" * 513, "/accounts/" + "ab" * 20, "/receipts/" + "zz" * 32],
            )
        )
        if self.random.random() < 0.6:
            return Sent("bad value", get(query), WRONG)
        path = self.random.choice(("/blocks/", "/receipts/", "/timers/", "/accounts/"))
        value = number if path == "/blocks/" else text
        absent = not value or "%2F" in value  # then it is another path
        return Sent("bad value", get(path + value), ABSENT if absent else WRONG)

    def _batch(self) -> Sent:
        drawn = [self.transactions.draw() for _ in range(self.random.choice((0, 1, 1, 2, 5)))]
        wires, reasons = [data for data, _ in drawn], tuple(reason for _, reason in drawn)
        is_json = self.random.random() < 0.5
        items: Any = [data.hex() for data in wires] if is_json else wires
        if len(wires) == 1 and self.random.random() < 0.5:
            items = items[0]
        body = msgspec.json.encode(items) if is_json else msgspec.msgpack.encode(items)
        kind = b"application/json" if is_json else b"application/msgpack"
        self.seen.add("/transactions")
        return Sent("batch", self._posted(body, kind), OK, reasons)

    def _accounts(self) -> Sent:
        """Addresses, or what is none."""
        random, self.seen = self.random, self.seen | {"/accounts"}
        sizes = [random.choice((20, 20, 20, 0, 19, 21, 1_000)) for _ in range(random.choice((0, 1, 2, 300)))]
        items, is_json = [random.randbytes(size) for size in sizes], random.random() < 0.5
        body = msgspec.json.encode([f"0x{each.hex()}" for each in items]) if is_json else msgspec.msgpack.encode(items)
        kind = b"application/json" if is_json else b"application/msgpack"
        statuses = WRONG if set(sizes) - {20} else OK
        return Sent("accounts", get("/accounts", b"Content-Type: " + kind, method=b"POST", body=body), statuses)

    def _posted(self, body: bytes, kind: bytes) -> bytes:
        """The body with its length, or in chunks."""
        if self.random.random() < 0.7:
            return get("/transactions", b"Content-Type: " + kind, method=b"POST", body=body)
        head = get("/transactions", b"Content-Type: " + kind, b"Transfer-Encoding: chunked", method=b"POST")
        step = max(self.random.randrange(1, len(body) + 1), len(body) // 50)
        chunks = [body[at : at + step] for at in range(0, len(body), step)]
        return head + b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"

    def _stream(self) -> Sent:
        """A stream of events, whose client goes away soon; or a place or a filter that is wrong."""
        choice = self.random.choice
        place = f"{choice(NUMBERS)}.{choice(NUMBERS)[:9]}"
        query = choice(("", f"?from={place}", f"?from={place}&name=x", f"?actor=0x{'ab' * 20}", "?name=" + "n" * 257))
        headers, statuses = [b"Accept: text/event-stream"], WRONG if "n" * 257 in query else frozenset({200, 429})
        if self.random.random() < 0.5:
            later, right = choice(((place, True), ("x", False), ("1.2.3", False), ("9" * 30, False), ("-1", False)))
            headers.append(b"Last-Event-ID: " + later.encode())
            statuses = statuses if right else WRONG
        self.seen.add("/events")
        return Sent("stream", get("/events" + query, *headers), statuses, ends=True, goes_on=True, is_stream=True)

    def _bad_body(self) -> Sent:
        kind, body = self.random.choice(
            (
                (b"text/plain", b"[]"),
                (b"", b"[]"),
                (b"multipart/form-data", b"[]"),
                (b"application/json", b""),
                (b"application/json", b"{}"),
                (b"application/json", b"[1]"),
                (b"application/json", b'["abc"]'),
                (b"application/json", b"[" * 50_000),
                (b"application/json", b'{"a":' * 20_000),
                (b"application/json", b'["\xff"]'),
                (b"application/json", b'"\\ud800"'),
                (b"application/msgpack", b"\x91" * 50_000),
                (b"application/msgpack", b"\xdd\xff\xff\xff\xff"),
                (b"application/msgpack", b"\xc6\xff\xff\xff\xff"),
                (b"application/msgpack", b"\xa2\xff\xfe"),
                (b"application/msgpack", b"\xc1"),
            )
        )
        page = self.random.choice(("/transactions", "/accounts"))
        return Sent("bad body", get(page, b"Content-Type: " + kind, method=b"POST", body=body), WRONG)

    def _too_much(self) -> Sent:
        head, large = b"Content-Type: application/json", frozenset({413})
        if self.random.random() < 0.5:
            length = b"Content-Length: %d" % self.random.choice((8 * 2**20 + 1, 10**12))
            return Sent("stated too large", get("/transactions", head, length, method=b"POST"), large, None, True, True)
        body, page = json.dumps([""] * 1_025).encode(), self.random.choice(("/transactions", "/accounts"))
        return Sent("batch too large", get(page, head, method=b"POST", body=body), large)


class HostileToTestnet(HostileRequests):
    """Requests to the testnet's own endpoint, without its token."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.not_there = ("/blocks",)
        self.kinds += [*[self._page] * 3, self._log, *[self._order] * 6]

    def _log(self) -> Sent:
        self.seen.add("/logs/{name}")
        name = self.random.choice(("host-0", "locust", "token", "%00", "a" * 999, "%ff"))
        return Sent("log", get(f"/logs/{name}"), frozenset({401}))

    def _page(self) -> Sent:
        files = ("style.css", "dashboard.css", "theme.js", "connection.js", "page.js")
        pages = ("/status", "/targets", "/metrics", "/", *(f"/dashboard/{file}" for file in files))
        path = self.random.choice(pages)
        self.seen.add(path)
        return Sent("page", get(path, b"Authorization: Bearer " + self.random.randbytes(4).hex().encode()), OK)

    def _order(self) -> Sent:
        path = self.random.choice(("/faults", "/load", "/stop", "/faucet"))
        self.seen.add(path)
        token = (b"Bearer", b"Bearer ", b"Bearer \xff", b"Basic YTpi", b"Bearer " + b"x" * 43, b"")
        shown = self.random.choice(([], [b"Authorization: " + self.random.choice(token)]))
        body = self.random.choice((b"", b"{}", b"[" * 50_000, b'{"kind": "kill"}', b'{"to": "0x"}', b"\xff"))
        refused = ABSENT if path == "/faucet" else frozenset({401})  # the testnet has no faucet
        return Sent("no token", get(path, *shown, method=b"POST", body=body), refused)


class HostileWithToken(HostileToTestnet):
    """Requests to the testnet's own endpoint from somebody who has the run's token, and gets orders wrong."""

    token: bytes = b""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.kinds += [*[self._wrong_fault] * 8, *[self._right_order] * 2]

    def _with_token(self, kind: str, path: str, body: bytes, statuses: frozenset[int]) -> Sent:
        self.seen.add(path)
        return Sent(kind, get(path, b"Authorization: Bearer " + self.token, method=b"POST", body=body), statuses)

    def _wrong_fault(self) -> Sent:
        choice = self.random.choice
        right: dict[str, Any] = {"kind": "kill", "target": "validator-1", "at_height": 20}
        changed: dict[str, Any] = choice(
            (
                {"kind": choice(("", "kil", None, 1, [], "kill\n", "x" * 10_000))},
                {"target": choice(("", "validator-9", -1, None, {}, ["validator-1"] * 500, "..", "é"))},
                {"at_height": choice((-1, 0, 1.5, "20", 10**30, True, [], 40))},
                {"down_ms": choice((-1, 10**30, "long", {}))},
                {"at_ms": 5},
                {"unknown": 1, "__class__": "x"},
            )
        )
        nested = "[" * 50_000, '{"kind":' * 20_000, '{"a":' * 90 + "1" + "}" * 90
        broken = choice(
            (b"", b"[]", b"null", b"1", b'"kill"', b"\xff", b'{"kind":', *(each.encode() for each in nested))
        )
        body = broken if self.random.random() < 0.3 else json.dumps(right | changed).encode()
        return self._with_token("wrong fault", "/faults", body, WRONG)

    def _right_order(self) -> Sent:
        """One that is taken; the token opens no faucet, and there is none."""
        fault = json.dumps(
            {"kind": "kill", "target": f"validator-{self.random.randrange(4)}", "at_height": 20}
        ).encode()
        body = self.random.choice((b"", b"{", b"[" * 1_000, b"\xff"))
        path, body, statuses = self.random.choice(
            (("/faults", fault, TAKEN), ("/stop", body, TAKEN), ("/faucet", body, ABSENT))
        )
        return self._with_token("order", path, body, statuses)


# --- the client -------------------------------------------------------------------------------------------------------


class Client:
    """A raw connection that is opened again whenever the server has ended it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connection: socket.socket | None = None
        self._rest = b""

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection, self._rest = None, b""

    def ask(self, *sent: Sent) -> list[Answer]:
        """Send requests one behind the other, and return their answers; only the last may end the connection."""
        if self._connection is None or self._has_ended():
            self.close()
            self._connection = socket.create_connection(("127.0.0.1", self._port), timeout=HANGS_AFTER_S)
        self._connection.sendall(b"".join(each.data for each in sent))
        if sent[-1].ends and not sent[-1].goes_on:
            with contextlib.suppress(OSError):  # the server was faster: its answer is here already
                self._connection.shutdown(socket.SHUT_WR)
        answers = [self._answer(each) for each in sent]
        if sent[-1].ends or answers[-1].headers.get("connection") == "close":
            self.close()
        return answers

    def _has_ended(self) -> bool:
        """Whether the server ended the connection meanwhile, for instance because it was quiet for 5 s."""
        assert self._connection is not None
        return bool(select.select([self._connection], [], [], 0)[0])

    def _answer(self, sent: Sent) -> Answer:
        while b"\r\n\r\n" not in self._rest:
            self._more(sent)
        head, self._rest = self._rest.split(b"\r\n\r\n", 1)
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, value in (line.split(":", 1) for line in lines)}
        if sent.is_stream and first.split()[1] == "200":
            return self._beginning_of_stream(sent, headers)
        length = int(headers["content-length"])
        while len(self._rest) < length:
            self._more(sent)
        body, self._rest = self._rest[:length], self._rest[length:]
        return Answer(int(first.split()[1]), headers, body)

    def _beginning_of_stream(self, sent: Sent, headers: dict[str, str]) -> Answer:
        """The first piece, which comes at once."""
        while self._rest.count(CRLF) < 2:
            self._more(sent)
        size, first, _ = self._rest.split(CRLF, 2)
        assert len(first) == int(size, 16), f"{sent.kind}: {self._rest[:200]!r}"
        self._rest = b""
        return Answer(200, headers, first)

    def _more(self, sent: Sent) -> None:
        assert self._connection is not None
        more = self._connection.recv(65_536)
        assert more, f"{sent.kind}: no answer to {sent.data[:200]!r}"
        self._rest += more


def check(sent: Sent, answer: Answer) -> None:
    """The answer is one of those that are right: its status, one line for an error, each transaction refused."""
    where = f"{sent.kind}: {sent.data[:300]!r} -> {answer.status} {answer.body[:300]!r}"
    assert answer.status in sent.statuses, where
    if answer.status >= 400:
        page = json.loads(answer.body)
        assert list(page) == ["error"] and page["error"] and page["error"].isprintable(), where
        assert answer.headers["content-type"] == "application/json", where
    if answer.status == 200 and sent.is_stream:
        assert answer.headers["content-type"].startswith("text/event-stream"), where
        assert answer.body == b": events\n\n", where
    if answer.status == 200 and sent.reasons is not None:
        results = json.loads(answer.body)["results"]
        assert len(results) == len(sent.reasons), where
        for result, allowed in zip(results, sent.reasons, strict=True):
            assert result["reason"] in allowed, f"{where}: expected one of {sorted(allowed)}"
            assert result["error"] and "\n" not in result["error"], where
