"""Blocks kept once: what validators served reads like their lists, and the checks find the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster.audit.books import keep_books
from cluster.audit.chains import longest_chain
from cluster.checks.run import check_run
from cluster.record.archive import BlockRecord
from cluster.record.chain_store import BlockStore, FileBlocks, MemoryBlocks, ServedBlocks, as_stored, joined
from cluster.record.run import RunRecord
from cluster.report.results import finish_run
from tests.cluster.checks.cases import other_branch
from tests.cluster.records import answer, make_record, own_blocks, with_late

LISTS = st.lists(st.lists(st.integers(0, 2), max_size=8), min_size=1, max_size=4)


def a_block(number: int) -> BlockRecord:
    return BlockRecord(bytes([number]) * 40, b"receipts", bytes([number % 2]) * 32)


@pytest.fixture(params=["memory", "file"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], BlockStore]:
    made = iter(range(10**6))
    return lambda: MemoryBlocks() if request.param == "memory" else FileBlocks(tmp_path / str(next(made)))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(numbers=LISTS, first=st.integers(1, 4), part=st.slices(8))
def test_served_blocks_are_sequences(
    make_store: Callable[[], BlockStore], numbers: list[list[int]], first: int, part: slice
) -> None:
    store = make_store()
    lists = [[a_block(number) for number in each] for each in numbers]
    served = []
    for place, blocks in enumerate(lists):
        served.append(ServedBlocks(store, first if place == len(lists) - 1 else 1))
        for block in blocks:
            served[-1].append(block)
    for blocks, mine in zip(lists, served, strict=True):
        assert list(mine) == blocks
        assert mine == blocks
        assert len(mine) == len(blocks)
        assert list(mine[part]) == blocks[part]
        assert mine[part] == blocks[part]
        assert [mine[place] for place in range(-len(blocks), len(blocks))] == blocks + blocks
        assert [mine == other for other in served] == [blocks == other for other in lists]
        assert list(joined(mine[:2], blocks[2:])) == blocks
    assert sum(len(mine.differing) for mine in served) <= sum(map(len, lists))


def test_what_all_serve_is_kept_once() -> None:
    store = MemoryBlocks()
    served = [ServedBlocks(store) for _ in range(3)]
    for number in range(10):
        for mine in served:
            mine.append(a_block(number if mine is not served[2] or number != 4 else 99))
    assert len(store) == 10
    assert [list(mine.differing) for mine in served] == [[], [], [5]]


def stored(record: RunRecord, store: BlockStore) -> RunRecord:
    """The same record, with its blocks in a store."""
    copies = []
    for validator in record.validators:
        served = ServedBlocks(store, validator.first_height)
        for block in validator.blocks:
            served.append(block)
        copies.append(replace(validator, blocks=served))
    return replace(record, validators=copies, store=store)


def untouched(record: RunRecord) -> None:
    pass


def another_block(record: RunRecord) -> None:
    record.validators[3].blocks = other_branch(9).blocks


def another_first_validator(record: RunRecord) -> None:
    record.validators[0].blocks = other_branch(2).blocks


def another_root(record: RunRecord) -> None:
    blocks = own_blocks(record.validators[2])
    blocks[6] = replace(blocks[6], computed_root=b"\xee" * 32)


def everybodys_root(record: RunRecord) -> None:
    for validator in record.validators:
        blocks = own_blocks(validator)
        blocks[6] = replace(blocks[6], computed_root=b"\xee" * 32)


def unreadable(record: RunRecord) -> None:
    blocks = own_blocks(record.validators[1])
    blocks[4] = replace(blocks[4], block=b"garbage")


def all_unreadable(record: RunRecord) -> None:
    for validator in record.validators[:3]:
        blocks = own_blocks(validator)
        blocks[4] = replace(blocks[4], block=b"garbage")


def short_and_late(record: RunRecord) -> None:
    record.validators[0].blocks = record.validators[0].blocks[:10]
    with_late(record, snapshot=6)


def late_and_longer(record: RunRecord) -> None:
    with_late(record, snapshot=6)
    for validator in record.validators[:3]:
        validator.blocks = validator.blocks[:10]
    answer(record)


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        untouched,
        another_block,
        another_first_validator,
        another_root,
        everybodys_root,
        unreadable,
        all_unreadable,
        short_and_late,
        late_and_longer,
    ],
)
def test_checks_find_the_same_in_lists_and_in_a_store(
    make_store: Callable[[], BlockStore], change: Callable[[RunRecord], None]
) -> None:
    record = make_record()
    change(record)
    kept = stored(record, make_store())
    assert list(longest_chain(kept.lives)) == list(longest_chain(record.lives))
    books, others = keep_books(kept), keep_books(record)
    assert books.views == others.views
    assert books.tips == others.tips
    assert books.findings == others.findings
    for name, chain in books.chains.items():
        other = others.chains[name]
        assert [chain.at(height) for height in chain.heights] == [other.at(height) for height in other.heights]
    assert check_run(kept, books).checks == check_run(record, others).checks


def archived(path: Path) -> list[BlockRecord]:
    return list(ServedBlocks.all_of(FileBlocks.archived(path)))


def test_a_store_in_the_runs_folder_becomes_its_archive(tmp_path: Path) -> None:
    store = FileBlocks(tmp_path / "blocks.part")
    record = stored(make_record(), store)
    finish_run(record, tmp_path)
    assert not (tmp_path / "blocks.part").exists()
    assert archived(tmp_path / "blocks.bin") == list(make_record().validators[0].blocks)
    assert record.validators[0].blocks == make_record().validators[0].blocks, "it can still be read"


def test_a_store_of_another_chain_than_the_runs_goes(tmp_path: Path) -> None:
    record = make_record()
    record.validators[0].mutant, record.validators[0].blocks = "planted", other_branch(9).blocks
    kept = stored(record, FileBlocks(tmp_path / "blocks.part"))
    finish_run(kept, tmp_path)
    assert not (tmp_path / "blocks.part").exists()
    assert archived(tmp_path / "blocks.bin") == list(record.validators[1].blocks)


@pytest.mark.parametrize("torn", [b"", b"\0", b"\0\0\0\x40half a block", b"\0\0\0\x04none"])
def test_a_store_goes_on_where_a_process_ended(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "blocks.part"
    first = FileBlocks(path)
    blocks = [a_block(number) for number in range(5)]
    for block in blocks[:3]:
        first.append(block)
    first.sync()
    with path.open("ab") as file:
        file.write(torn)
    again = FileBlocks.reopen(path, tmp_path / "blocks.bin")
    assert [again.at(height) for height in (1, 2, 3)] == blocks[:3] and len(again) == 3
    assert again.holds(3, blocks[2]) and not again.holds(3, blocks[1])
    for block in blocks[3:]:
        again.append(block)
    again.publish(tmp_path / "blocks.bin")
    assert archived(tmp_path / "blocks.bin") == blocks


def test_a_store_goes_on_where_a_process_ended_after_it_was_published(tmp_path: Path) -> None:
    path, archive = tmp_path / "blocks.part", tmp_path / "blocks.bin"
    first, blocks = FileBlocks(path), [a_block(number) for number in range(3)]
    for block in blocks[:2]:
        first.append(block)
    first.publish(archive)
    again = FileBlocks.reopen(path, archive)
    assert not archive.exists() and [again.at(height) for height in (1, 2)] == blocks[:2] and len(again) == 2
    again.append(blocks[2])
    again.publish(archive)
    assert not path.exists() and archived(archive) == blocks


def test_a_store_that_has_lost_blocks_takes_back_what_is_known_of_validators(tmp_path: Path) -> None:
    store = FileBlocks(tmp_path / "blocks.part")
    served, other = ServedBlocks(store), ServedBlocks(store)
    for number in range(4):
        served.append(a_block(number))
        other.append(a_block(9 if number == 1 else number))
    found = [as_stored(each) for each in (served, other)]
    assert [len(each) for each in found] == [4, 4]
    store.sync()
    content = (tmp_path / "blocks.part").read_bytes()
    (tmp_path / "blocks.part").write_bytes(content[:-1])
    served.store = other.store = FileBlocks.reopen(tmp_path / "blocks.part", tmp_path / "blocks.bin")
    assert len(served.store) == 3
    assert [len(as_stored(each)) for each in (served, other)] == [3, 3]
    assert as_stored(other)[1] == a_block(9)


def test_blocks_beyond_an_archive_are_kept_apart_from_it(tmp_path: Path) -> None:
    """As of a validator that joined late, and made other blocks than the chain that was kept."""
    store, archive = FileBlocks(tmp_path / "blocks.part"), tmp_path / "blocks.bin"
    for number in range(3):
        store.append(a_block(number))
    store.publish(archive)
    content = archive.read_bytes()
    kept = ServedBlocks.all_of(FileBlocks.archived(archive))
    found = joined(kept, [a_block(3), a_block(4)])
    assert list(found) == [a_block(number) for number in range(5)]
    assert len(kept) == 3 and archive.read_bytes() == content
