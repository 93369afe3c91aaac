"""A small synchronous client of a validator's HTTP interface (``docs/http.md``).

The client does not retry: the caller gets each failure as a :class:`ClientError` and decides. A question (``GET``) that
meets the server's closing of a kept connection is asked again on a new one (RFC 9112, section 9.3.1). A client may be
used from several threads.
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec
import urllib3
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool

from validator.primitives.codec import decoder_of
from validator.primitives.types import address_text

MESSAGEPACK: Final = "application/msgpack"
DEFAULT_TIMEOUT_S: Final = 5.0
CONNECTIONS: Final = 4
MAX_ERROR_TEXT: Final = 500
_LIBRARYS_OBJECT: Final = re.compile(r"^\w+\(host=[^)]*\): ")
MAX_ANSWER_BYTES: Final = 512 * 1024 * 1024
"""Maximum size of the body of an answer."""
MAX_PAGE_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of the body of an answer in JSON."""
MAX_ERROR_BYTES: Final = 64 * 1024
"""Maximum size of the body of an answer that is an error."""
PIECE_BYTES: Final = 1 << 20

Page = dict[str, Any]
BlockTriple = tuple[bytes, bytes, bytes]
"""The canonical encodings of a block and of its receipts, and the state root that the validator computed."""


FinalityProof = tuple[bytes, list[bytes], bytes]
"""Proof that a block is final, in canonical encodings: the block's header, the headers that link it to a finalized
block, and that block's finalization certificate."""


class ClientError(Exception):
    """A request got no answer, an error, or an answer that contradicts ``docs/http.md``. The message is one line."""


class Refused(ClientError):
    """The validator answered with an error. ``status`` is the HTTP status, ``reason`` the error text in one line."""

    def __init__(self, url: str, status: int, reason: str) -> None:
        super().__init__(f"{url}: status {status}: {reason}")
        self.status = status
        self.reason = reason


class NotFound(Refused):
    """The requested item does not exist (status 404)."""


class Gone(NotFound):
    """The requested item was pruned (status 410)."""


ERRORS: Final = {404: NotFound, 410: Gone}
"""The exception for each HTTP error status; for any other status it is :class:`Refused`."""


@dataclass(frozen=True, slots=True)
class PostResult:
    """The answer to a posted transaction: ``error`` and ``reason`` are ``None`` if the mempool accepted it."""

    transaction_hash: bytes
    error: str | None
    """Why the mempool refused the transaction, as one line of text for people."""
    reason: str | None = None
    """Reason of the refusal, as a fixed word (``docs/http.md``). Validators of earlier versions give none."""


class _BoundedSocket(socket.socket):
    """A socket whose reads all end by one deadline. A plain timeout bounds each read only."""

    deadline_s = float("inf")

    def recv_into(self, *given: Any) -> int:
        left_s = self.deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        self.settimeout(left_s)
        return super().recv_into(*given)


class _WasClosed(ConnectionError):
    """The server has closed a kept connection, and has not answered what was sent meanwhile."""


class _BoundedConnection(HTTPConnection):
    """A connection on which the answer to a request arrives within the timeout as a whole."""

    _is_kept = False
    """Whether a request was answered on it."""

    def _new_conn(self) -> socket.socket:
        self._is_kept = False
        plain = super()._new_conn()
        timeout_s = plain.gettimeout()
        bounded = _BoundedSocket(fileno=plain.detach())
        bounded.settimeout(timeout_s)
        return bounded

    def getresponse(self) -> urllib3.HTTPResponse:  # type: ignore[override]
        sock, timeout_s = self.sock, self.timeout
        assert isinstance(sock, _BoundedSocket) and isinstance(timeout_s, float | int), "as the client makes them"
        sock.deadline_s = time.monotonic() + timeout_s
        try:
            answer = super().getresponse()
        except ConnectionError as error:
            raise (_WasClosed(str(error)) if self._is_kept else error) from None
        self._is_kept = True
        return answer


class _BoundedPool(HTTPConnectionPool):
    ConnectionCls = _BoundedConnection


class ValidatorClient:
    """HTTP client of one validator. Every request that fails raises :class:`ClientError`."""

    def __init__(self, endpoint: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        """``endpoint`` is ``http://host:port``. ``timeout_s`` bounds connecting, sending a request, and the whole
        answer, each in seconds."""
        self.endpoint = endpoint.rstrip("/")
        self._pool = urllib3.PoolManager(
            maxsize=CONNECTIONS, retries=False, timeout=urllib3.Timeout(connect=timeout_s, read=timeout_s)
        )
        self._pool.pool_classes_by_scheme = {**self._pool.pool_classes_by_scheme, "http": _BoundedPool}

    def close(self) -> None:
        self._pool.clear()

    def __enter__(self) -> ValidatorClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def post_transactions(self, transactions: list[bytes]) -> list[PostResult]:
        """Submit signed transactions; the results have the same order."""
        body = msgspec.msgpack.encode(transactions)
        page = self._json("POST", "/transactions", body=body, headers={"Content-Type": MESSAGEPACK})
        try:
            results = [
                PostResult(bytes.fromhex(item["hash"]), item["error"], item.get("reason")) for item in page["results"]
            ]
        except (KeyError, TypeError, ValueError):
            raise ClientError(f"{self.endpoint}/transactions: no list of results") from None
        if len(results) != len(transactions):
            raise ClientError(
                f"{self.endpoint}/transactions: {len(results)} results for {len(transactions)} transactions"
            )
        return results

    def status(self) -> Page:
        return self._json("GET", "/status")

    def block(self, height: int) -> Page:
        """The final block at a height, as a JSON object. Raises :class:`NotFound`."""
        return self._json("GET", f"/blocks/{height}")

    def blocks(self, first: int, count: int) -> list[BlockTriple]:
        """Existing final blocks from height ``first`` on, at most ``count`` (1 to 256).

        Raises :class:`Gone` if the first was pruned.
        """
        return self._decode(f"/blocks?from={first}&count={count}", list[BlockTriple], count)

    def block_digests(self, first: int, count: int) -> list[bytes]:
        """The digests of final blocks from height ``first`` on. Bounds and errors are those of :meth:`blocks`."""
        return self._decode(f"/blocks?from={first}&count={count}&digests=1", list[bytes], count)

    def finality(self, height: int) -> FinalityProof:
        """The proof that the block at a height is final. Raises :class:`NotFound`."""
        return self._decode(f"/blocks/{height}/finality", FinalityProof)

    def proof(self, key: bytes, height: int) -> Page:
        """The value of a key in the state at a height, with its proof against the state root.

        Raises :class:`NotFound` if the validator does not retain that state.
        """
        return self._json("GET", f"/proofs/{key.hex()}?height={height}")

    def receipt(self, transaction_hash: bytes) -> Page:
        """The receipt of a transaction. Raises :class:`NotFound` until the transaction is final."""
        return self._json("GET", f"/receipts/{transaction_hash.hex()}")

    def account(self, address: bytes) -> Page:
        return self._json("GET", f"/accounts/{address_text(address)}")

    def accounts(self, addresses: list[bytes]) -> Page:
        """The accounts at up to 1,024 addresses, all as of the same block."""
        body = msgspec.msgpack.encode(addresses)
        return self._json("POST", "/accounts", body=body, headers={"Content-Type": MESSAGEPACK})

    def timer(self, timer_id: bytes) -> Page:
        """A timer that is pending or ended recently. Raises :class:`NotFound` for any other."""
        return self._json("GET", f"/timers/{timer_id.hex()}")

    def parameters(self) -> Page:
        """The chain's parameters in force. Raises :class:`NotFound` if the validator has no such page."""
        return self._json("GET", "/parameters")

    def supply(self) -> Page:
        """The sum of all balances, and the amount burned. Raises :class:`Refused` unless the validator is at rest."""
        return self._json("GET", "/supply")

    def divergence(self) -> bytes:
        """How a validator that diverged executed the block at which it did, as MessagePack.

        Raises :class:`NotFound` if the validator has not diverged.
        """
        return self._request("GET", "/divergence")

    def genesis(self) -> str:
        """The chain's genesis, as the text of a genesis file."""
        return self._request("GET", "/genesis").decode("utf-8", "replace")

    def metrics(self) -> str:
        return self._request("GET", "/metrics").decode("utf-8", "replace")

    def _decode(self, path: str, kind: Any, most: int | None = None) -> Any:
        """An answer in MessagePack. ``most`` is the maximum number of its items."""
        data = self._request("GET", path, headers={"Accept": MESSAGEPACK})
        try:
            items = decoder_of(kind).decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ClientError(f"{self.endpoint}{path}: {error}") from None
        if most is not None and len(items) > most:
            raise ClientError(f"{self.endpoint}{path}: {len(items):,} items, expected at most {most:,}")
        return items

    def _json(self, method: str, path: str, **options: Any) -> Page:
        page = json_object(self._request(method, path, MAX_PAGE_BYTES, **options))
        if page is None:
            raise ClientError(f"{self.endpoint}{path}: no JSON object")
        return page

    def _request(self, method: str, path: str, most_bytes: int = MAX_ANSWER_BYTES, **options: Any) -> bytes:
        url = self.endpoint + path
        try:
            answer = self._answer(method, url, options)
            is_error = answer.status != 200
            body = _body(answer, MAX_ERROR_BYTES if is_error else most_bytes)
        except urllib3.exceptions.HTTPError as error:
            raise ClientError(f"{url}: {reason_of(error)}") from None
        if body is None and not is_error:
            raise ClientError(f"{url}: an answer of more than {most_bytes:,} bytes")
        if not is_error:
            return body or b""
        raise ERRORS.get(answer.status, Refused)(url, answer.status, _reason(body or b"its body is too large"))

    def _answer(self, method: str, url: str, options: Mapping[str, Any]) -> urllib3.BaseHTTPResponse:
        """The answer to a request, whose body is not read. Raises ``HTTPError`` of urllib3."""
        ask = partial(self._pool.request, method, url, redirect=False, preload_content=False, **options)
        try:
            return ask()
        except urllib3.exceptions.ProtocolError as error:
            if method == "GET" and isinstance(error.args[-1], _WasClosed):
                return ask()
            raise


def _body(answer: urllib3.BaseHTTPResponse, most_bytes: int) -> bytes | None:
    """The body of an answer as it was sent; ``None`` if it has more bytes than ``most_bytes``."""
    body = bytearray()
    while piece := answer.read(PIECE_BYTES, decode_content=False):
        body += piece
        if len(body) > most_bytes:
            answer.close()
            return None
    answer.release_conn()
    return bytes(body)


def reason_of(error: BaseException) -> str:
    """The reason of an error of urllib3 in one line, without the library's object that had it."""
    return _LIBRARYS_OBJECT.sub("", " ".join(str(error).split()))


def json_object(data: bytes) -> Page | None:
    """Parse bytes as a JSON object; ``None`` if they are not one."""
    try:
        page = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return page if isinstance(page, dict) else None


def _reason(data: bytes) -> str:
    """The error text of an answer, in one line: its JSON field ``error``, or else the beginning of its body."""
    reason = (json_object(data) or {}).get("error", data.decode("utf-8", "replace"))
    return " ".join(str(reason).split())[:MAX_ERROR_TEXT]
