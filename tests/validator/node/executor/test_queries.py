"""Pages over a final state: an actor's open jobs, found once a block."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from validator.chain.records import Actor, ActorJobs, Job, actor_jobs_key, actor_key, encode_record, job_key
from validator.node.executor.queries import StatePages
from validator.primitives.types import Address, Hash

ONE, OTHER, IDLE = (Address(bytes([number]) * 20) for number in (1, 2, 3))


class State:
    """The part of an executor that pages look at, on a dict."""

    def __init__(self) -> None:
        self.records: dict[bytes, bytes] = {}
        self.scans = 0
        self.final_view = self
        self.finish(1)
        for actor in (ONE, OTHER, IDLE):
            self.put(actor_key(actor), Actor("builtin:script", ONE))

    def finish(self, height: int, root: bytes = b"") -> None:
        self.final_header = SimpleNamespace(height=height, state_root=root or bytes([height]) * 32)

    def put(self, key: bytes, record: Any) -> None:
        self.records[key] = encode_record(key, record)

    def open_job(self, number: int, actor: Address, **more: Any) -> str:
        self.put(actor_jobs_key(actor), ActorJobs(1, 1))
        self.put(job_key(Hash(bytes([number]) * 32)), Job(actor, "handle", 2, **{"ends_at": 50, **more}))
        return f"{number:02x}" * 32

    def get(self, key: bytes) -> bytes | None:
        return self.records.get(key)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        self.scans += 1
        return ((key, self.records[key]) for key in sorted(self.records) if key.startswith(prefix))


def test_open_jobs_are_those_of_the_actor_that_still_take_results() -> None:
    state = State()
    ids = [state.open_job(9, ONE), state.open_job(2, ONE, runners=(OTHER,))]
    state.open_job(3, ONE, runners=(OTHER, IDLE))
    state.open_job(4, ONE, consumed=True)
    state.open_job(5, ONE, ends_at=1)
    theirs = state.open_job(6, OTHER)
    pages = StatePages(state)  # type: ignore[arg-type]
    assert pages.account(ONE)["open_jobs"] == sorted(ids)
    assert pages.account(OTHER)["open_jobs"] == [theirs]
    assert pages.account(IDLE)["open_jobs"] == []
    both = pages.accounts([OTHER, ONE])["accounts"]
    assert [each["open_jobs"] for each in both] == [[theirs], sorted(ids)] and "code" not in both[0]


def test_jobs_are_looked_through_once_for_each_final_state_and_only_where_somebody_has_some() -> None:
    state = State()
    pages = StatePages(state)  # type: ignore[arg-type]
    assert pages.account(ONE)["open_jobs"] == [] and state.scans == 0
    first = state.open_job(1, ONE)
    for actor in (ONE, OTHER, ONE):
        pages.account(actor)
    assert state.scans == 1
    second = state.open_job(2, ONE)
    state.finish(2)
    assert pages.account(ONE)["open_jobs"] == [first, second]
    state.finish(2, root=b"\7" * 32)
    state.open_job(1, ONE, consumed=True)
    assert pages.account(ONE)["open_jobs"] == [second]
    assert state.scans == 3
