"""A small synchronous client of a validator's HTTP interface (``docs/http.md``).

The client never retries: the caller gets each failure as a :class:`ClientError` and decides. A client may be used from
several threads.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import urllib3

from validator.primitives.codec import decoder_of
from validator.primitives.types import address_text

MESSAGEPACK: Final = "application/msgpack"
DEFAULT_TIMEOUT_S: Final = 5.0
CONNECTIONS: Final = 4
MAX_ERROR_TEXT: Final = 500

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


class ValidatorClient:
    """HTTP client of one validator. Every request that fails raises :class:`ClientError`."""

    def __init__(self, endpoint: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        """``endpoint`` is ``http://host:port``; ``timeout_s`` bounds connecting and each wait for data, in seconds."""
        self.endpoint = endpoint.rstrip("/")
        self._pool = urllib3.PoolManager(
            maxsize=CONNECTIONS, retries=False, timeout=urllib3.Timeout(connect=timeout_s, read=timeout_s)
        )

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
        return self._decode(f"/blocks?from={first}&count={count}", list[BlockTriple])

    def block_digests(self, first: int, count: int) -> list[bytes]:
        """The digests of final blocks from height ``first`` on. Bounds and errors are those of :meth:`blocks`."""
        return self._decode(f"/blocks?from={first}&count={count}&digests=1", list[bytes])

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

    def metrics(self) -> str:
        return self._request("GET", "/metrics").decode("utf-8", "replace")

    def _decode(self, path: str, kind: Any) -> Any:
        data = self._request("GET", path, headers={"Accept": MESSAGEPACK})
        try:
            return decoder_of(kind).decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ClientError(f"{self.endpoint}{path}: {error}") from None

    def _json(self, method: str, path: str, **options: Any) -> Page:
        page = json_object(self._request(method, path, **options))
        if page is None:
            raise ClientError(f"{self.endpoint}{path}: no JSON object")
        return page

    def _request(self, method: str, path: str, **options: Any) -> bytes:
        url = self.endpoint + path
        try:
            answer = self._pool.request(method, url, redirect=False, **options)
        except urllib3.exceptions.HTTPError as error:
            raise ClientError(f"{url}: {' '.join(str(error).split())}") from None
        if answer.status == 200:
            return answer.data
        raise ERRORS.get(answer.status, Refused)(url, answer.status, _reason(answer.data))


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
