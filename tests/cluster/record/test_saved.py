"""The record of a run is the same for another process, and a file that is not one is refused in one line."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster.common.errors import BadInput
from cluster.record import saved
from cluster.record.archive import BLOCKS_FILE, BlockRecord
from cluster.record.chain_store import MemoryBlocks, ServedBlocks
from cluster.record.finalizations import Finalization, Finalizations
from cluster.record.folder import RECORD_FILE
from cluster.record.run import RunRecord, ValidatorRecord
from cluster.record.saved import ELSEWHERE, RECORD_FORMAT, SavedBlocks, enter, read_record, save, sealed
from cluster.report.results import finish_run
from cluster.scenario import Scenario
from consensus.keys import Ed25519Scheme, KeyedHashScheme, SignatureScheme
from loadgen.workloads.measures import LoadTimeline, Sends
from tests.cluster.live.handover.parts import inside, sends, timeline, written_and_read
from tests.cluster.records import make_record, make_scenario

FINITE = st.floats(allow_nan=False, allow_infinity=False)
AMOUNTS = st.integers(0, 2**128 - 1)
JSON = st.recursive(
    st.none() | st.booleans() | AMOUNTS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
PAGES = st.dictionaries(st.text(max_size=5), JSON, max_size=3)


OF_TYPES: dict[type, st.SearchStrategy[Any]] = {
    float: FINITE,
    Scenario: st.just(make_scenario()),
    Sends: st.builds(sends),
    LoadTimeline: st.builds(timeline),
    SignatureScheme: st.sampled_from([Ed25519Scheme(), KeyedHashScheme()]),
    Finalizations: st.lists(st.builds(Finalization, FINITE, st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1))).map(
        Finalizations
    ),
}


def of_type(kind: Any) -> st.SearchStrategy[Any]:
    """Values of the type of a record's field."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in OF_TYPES:
        return OF_TYPES[kind]
    if origin in (Union, UnionType):
        return st.one_of(*map(of_type, arguments))
    if origin in (list, deque):
        return st.lists(of_type(arguments[0]), max_size=3).map(origin)
    if origin is tuple and arguments[1:] == (...,):
        return st.lists(of_type(arguments[0]), max_size=3).map(tuple)
    if origin is dict:
        return st.dictionaries(*map(of_type, arguments), max_size=3)
    if origin is Literal:
        return st.sampled_from(arguments)
    if is_dataclass(kind) or hasattr(kind, "_fields"):
        return st.builds(kind, **{name: of_type(each) for name, each in get_type_hints(kind).items()})
    return st.from_type(kind)


DRAWN: Final = [
    field.name for field in fields(RunRecord) if field.name not in ELSEWHERE | {"validators", "lost", "drill"}
]
BLOCKS = st.builds(BlockRecord, st.binary(max_size=9), st.binary(max_size=9), st.binary(max_size=9))


def validators() -> st.SearchStrategy[ValidatorRecord]:
    hints = {name: kind for name, kind in get_type_hints(ValidatorRecord).items() if name != "blocks"}
    given = {name: of_type(kind) for name, kind in hints.items() if name not in ("status", "balances")}
    given |= {"status": st.none() | PAGES, "balances": st.dictionaries(st.text(max_size=5), AMOUNTS, max_size=3)}
    return st.builds(ValidatorRecord, blocks=st.just([]), **given)


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_record_is_the_same_for_another_process(data: st.DataObject) -> None:
    hints, record, other = get_type_hints(RunRecord), make_record(backend="live"), make_record(backend="live")
    record.validators.clear()
    for name in DRAWN:
        setattr(record, name, data.draw(of_type(hints[name]), name))
    for each in data.draw(st.lists(validators(), max_size=2), "validators"):
        each.blocks = ServedBlocks.all_of(record.store)
        each.first_height = 1
        record.validators.append(each)
    enter(written_and_read(save(record)), other)
    for name in set(DRAWN) - {"finalizations"}:
        assert inside(getattr(other, name)) == inside(getattr(record, name)), name
    assert other.finalizations == record.finalizations
    assert inside(other.validators, ("store",)) == inside(record.validators, ("store",))


@given(st.integers(1, 5), st.lists(BLOCKS, min_size=1, max_size=6), st.integers(0, 6), st.data())
def test_the_blocks_of_a_validator_are_the_stores_and_its_own(
    first: int, stored: list[BlockRecord], differs_at: int, data: st.DataObject
) -> None:
    store = MemoryBlocks(stored)
    blocks = ServedBlocks(store, min(first, len(stored)))
    for height in range(blocks.first_height, len(stored) + 1):
        own = BlockRecord(b"own", b"", b"") if height == differs_at else store.at(height)
        blocks.append(own)
    left = written_and_read(SavedBlocks.of(blocks, blocks.first_height, ServedBlocks.all_of(store)))
    assert inside(left.served(store)) == inside(blocks)
    shorter = MemoryBlocks(stored[: data.draw(st.integers(0, len(stored)))])
    known = left.served(shorter)
    assert list(known) == list(blocks)[: len(known)], "the store may have lost its last ones"
    for chain in (stored, stored[:2], []):  # an archive need not have the store's blocks
        again = SavedBlocks.of(blocks, blocks.first_height, chain).served(MemoryBlocks(chain))
        assert list(again) == list(blocks)


# --- the file ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    finish_run(make_record(), folder)
    return folder


def refusal(original: Path, folder: Path, change: Callable[[Path], object]) -> str:
    """Why a changed folder is refused."""
    for path in original.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    change(folder)
    with pytest.raises(BadInput) as refused:
        read_record(folder)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_record_is_read_with_its_genesis_and_blocks(original: Path) -> None:
    record, found = make_record(), read_record(original)
    assert inside(found.genesis) == inside(record.genesis)
    assert [list(each.blocks) for each in found.validators] == [list(each.blocks) for each in record.validators]
    assert len(found.store) == record.validators[0].tip


def test_every_torn_length_is_refused(original: Path, tmp_path: Path) -> None:
    whole = (original / RECORD_FILE).read_bytes()
    for length in [*range(0, len(whole), 499), len(whole) - 1]:
        said = refusal(original, tmp_path, lambda folder, end=length: (folder / RECORD_FILE).write_bytes(whole[:end]))  # type: ignore[misc]
        assert said.startswith(f"{tmp_path / RECORD_FILE}: is "), said


UNFIT: Final = f"does not fit format {RECORD_FORMAT}: Object"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is no record of a run"),
        (b"stampede checkpoint 2\n\n", "is no record of a run"),
        (
            sealed("record", RECORD_FORMAT + 1, b""),
            f"is of format {RECORD_FORMAT + 1}; expected format {RECORD_FORMAT}",
        ),
        (sealed("record", RECORD_FORMAT, b"no zlib"), "is damaged: "),
        (sealed("record", RECORD_FORMAT, zlib.compress(b"{}")[:-3]), "is cut off, or has more than"),
        (sealed("record", RECORD_FORMAT, zlib.compress(b"{}")), f"{UNFIT} missing required field `scenario`"),
        (sealed("record", RECORD_FORMAT, zlib.compress(b'{"mood":"good"}')), f"{UNFIT} contains unknown"),
    ],
)
def test_a_file_that_is_no_record_is_refused(original: Path, tmp_path: Path, content: bytes, problem: str) -> None:
    said = refusal(original, tmp_path, lambda folder: (folder / RECORD_FILE).write_bytes(content))
    assert said.startswith(f"{tmp_path / RECORD_FILE}: {problem}"), said


def test_a_text_longer_than_is_read_is_refused(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved, "MAX_TEXT_BYTES", 99)
    assert "has more than 99 bytes of text" in refusal(original, tmp_path, lambda folder: None)


def test_an_archive_that_is_damaged_or_missing_is_refused(original: Path, tmp_path: Path) -> None:
    def flip(folder: Path) -> None:
        content = bytearray((folder / BLOCKS_FILE).read_bytes())
        content[len(content) // 2] ^= 1
        (folder / BLOCKS_FILE).write_bytes(content)

    assert refusal(original, tmp_path, flip).endswith("is no archive of blocks, or a damaged one")
    assert "No such file" in refusal(original, tmp_path, lambda folder: (folder / BLOCKS_FILE).unlink())
