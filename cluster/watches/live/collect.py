"""Collects the pages of every validator at the end of a run, over HTTP like any client.

The validators are at rest meanwhile, so that blocks, status, balances and timers of one validator are consistent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import suppress
from functools import partial
from typing import Final

from cluster.audit.books import FinalQueries, KeptLedger, final_queries
from cluster.audit.chains import longest_chain
from cluster.audit.proofs import Answers, Page, ProofAudit, Unproved, with_answers
from cluster.record.chain_store import ServedBlocks
from cluster.record.run import RunRecord, Supply, ValidatorRecord
from cluster.watches.live.live_audit import LiveAudit, first_height_of, read_status
from loadgen.client import ClientError, FinalityProof, Gone, NotFound, Refused, ValidatorClient
from validator.node.executor.queries import PENDING
from validator.primitives.types import parse_address

REQUEST_TIMEOUT_S: Final = 20.0
"""Timeout of each request. A validator at rest that takes longer counts as gone."""
ASKED_AT_A_TIME: Final = 4
"""Validators queried concurrently."""
CHECK_EVERY_S: Final = 0.1

Work = Callable[[ValidatorClient, ValidatorRecord], Iterator[None]]
"""Queries one validator, and yields after each request."""


def collect(
    record: RunRecord, urls: dict[int, str], checkpoint: Callable[[], None], audit: LiveAudit | None = None
) -> None:
    """Fill ``record.validators`` with the data that each validator serves.

    A validator that does not answer is noted in ``record.problems``. ``urls`` are the endpoints by validator index.
    ``checkpoint`` is called often and may raise to end the collection early; data collected by then stays. ``audit``
    is the audit that followed the run: only data that it lacks is requested.
    """
    audit = LiveAudit(record) if audit is None else audit
    record.validators = list(audit.known.values())
    record.note_mutants()
    record.monitor = with_answers(audit.safety.record(), ())
    ask_all = partial(_ask_all, record, urls, checkpoint)
    reachable = [found for found in record.validators if found.index in urls]
    external = record.scenario.validators.external
    ours = [found for found in reachable if not found.byzantine and found.index not in external]
    answering = ask_all(ours, partial(_take_blocks, audit))
    answering += ask_all([found for found in reachable if found.index in external], partial(_take_blocks, audit))
    if audit.reexecution is not None:
        audit.reexecution.look()  # it continues while validators are queried
    audit.safety.look(record.store, is_end=True)
    record.monitor = with_answers(audit.safety.record(), ())
    answering += ask_all([found for found in reachable if found.byzantine], partial(_take_blocks, audit))
    chain = longest_chain(record.lives)
    record.kept_ledger = KeptLedger.of_run(record, chain, audit.kept)
    ledger = record.kept_ledger.ledger
    asked = final_queries(ledger)
    note_stateless(answering, record, urls)
    with_state = [found for found in answering if found.serves_state]
    answering = ask_all(with_state, lambda client, found: _take_answers(client, found, asked))
    proof_audit, proved = ProofAudit(record, chain, ledger), {each.index: Answers(each.name) for each in answering}
    try:
        ask_all(answering, lambda client, found: proof_audit.ask(found, ServedOverHttp(client), proved[found.index]))
    finally:
        record.monitor = with_answers(record.monitor, proved.values())
    for found in record.validators:
        found.mutant_runs = (found.status or {}).get("mutant_runs", 0)


def note_stateless(answering: Sequence[ValidatorRecord], record: RunRecord, urls: Mapping[int, str]) -> None:
    """Note which external validators serve blocks and no state: they have no page ``/supply``."""
    external = record.scenario.validators.external
    for found in answering:
        if found.index in external:
            with ValidatorClient(urls[found.index], REQUEST_TIMEOUT_S) as client, suppress(ClientError):
                found.serves_state = _has_supply(client)


def _has_supply(client: ValidatorClient) -> bool:
    try:
        client.supply()
    except NotFound:
        return False
    return True


def _ask_all(
    record: RunRecord,
    urls: dict[int, str],
    checkpoint: Callable[[], None],
    validators: Sequence[ValidatorRecord],
    work: Work,
) -> list[ValidatorRecord]:
    """Do ``work`` with several validators concurrently. Returns those that answered, and notes the others as problems.

    ``checkpoint`` is called often and may raise to end the work early.
    """
    answered: list[ValidatorRecord] = []
    stopped = threading.Event()
    pool = ThreadPoolExecutor(ASKED_AT_A_TIME, thread_name_prefix="collect")
    try:
        asked = {pool.submit(_ask, urls[found.index], found, work, stopped): found for found in validators}
        while wait_for(asked, CHECK_EVERY_S).not_done:
            checkpoint()
        for future, found in asked.items():
            error = future.exception()
            if isinstance(error, ClientError):
                record.problems.append(f"{found.name} did not answer at the end: {error}")
            elif error is not None:
                raise error
            else:
                answered.append(found)
    finally:
        stopped.set()
        pool.shutdown(cancel_futures=True)
    return answered


def _ask(url: str, found: ValidatorRecord, work: Work, stopped: threading.Event) -> None:
    with ValidatorClient(url, REQUEST_TIMEOUT_S) as client:
        for _ in work(client, found):
            if stopped.is_set():
                return


def _take_blocks(audit: LiveAudit, client: ValidatorClient, found: ValidatorRecord) -> Iterator[None]:
    found.status = read_status(client)
    first = first_height_of(found.status)
    if found.first_height != first:
        found.first_height, found.blocks = first, ServedBlocks(audit.store, first)
    if found.status.get("diverged") is not None:
        found.trace = client.divergence()
        yield
    taking = audit.take_blocks(client, found)
    while True:
        with audit.lock:
            try:
                if next(taking, None) is None:
                    return
            except Gone:
                audit.note_gap(found, found.status)
                return
        yield


def _take_answers(client: ValidatorClient, found: ValidatorRecord, asked: FinalQueries) -> Iterator[None]:
    supply = client.supply()
    found.supply = Supply(*(_amount(supply, name, f"{client.endpoint}/supply") for name in ("balances", "burned")))
    yield
    for address in asked.accounts:
        account = client.account(parse_address(address))
        found.balances[address] = _amount(account, "balance", f"{client.endpoint}/accounts/{address}")
        yield
    for timer in asked.timers:
        found.pending_timers[timer] = _is_pending(client, timer)
        yield


def _amount(page: Page, name: str, where: str) -> int:
    """An amount on a page. Raises :class:`ClientError`."""
    value = page.get(name)
    if type(value) is not int:
        raise ClientError(f"{where}: {name}: expected a whole number")
    return value


class ServedOverHttp:
    """The proofs of one validator, requested over HTTP (a :class:`cluster.audit.proofs.Server`)."""

    def __init__(self, client: ValidatorClient) -> None:
        self._client = client

    def finality(self, height: int) -> FinalityProof | None:
        try:
            return self._client.finality(height)
        except NotFound:
            return None
        except Refused as error:
            raise Unproved(str(error)) from None

    def proof(self, key: bytes, height: int) -> Page:
        try:
            return self._client.proof(key, height)
        except Refused as error:
            raise Unproved(str(error)) from None


def _is_pending(client: ValidatorClient, timer: str) -> bool:
    try:
        return client.timer(bytes.fromhex(timer)).get("state") == PENDING
    except NotFound:
        return False
