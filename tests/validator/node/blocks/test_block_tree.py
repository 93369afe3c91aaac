"""The node's tree of blocks: lines, what is missing from them, and what finality leaves."""

from __future__ import annotations

import pytest

from validator.chain.block import Block, Header, header_hash
from validator.node.blocks.block_tree import BlockState, BlockTree, HeldBlock
from validator.node.limits import BlockLimits
from validator.primitives.types import Hash

GENESIS = Hash(bytes(32))


def make(height: int, parent: bytes, salt: int = 0, transactions: tuple[bytes, ...] = (b"one",)) -> Block:
    zero = bytes(32)
    return Block(Header("c", height, salt, parent, 0, zero, zero, zero, b"", b"", b"", 0, 0, 0, 0), transactions)


def add(tree: BlockTree, block: Block, body: bytes = b"body") -> Hash:
    assert tree.add(block, body) is not None
    return header_hash(block.header)


def line_of(count: int, parent: Hash = GENESIS, height: int = 0, salt: int = 0) -> list[Block]:
    blocks = []
    for step in range(1, count + 1):
        blocks.append(make(height + step, parent, salt))
        parent = header_hash(blocks[-1].header)
    return blocks


def digests(blocks: list[Block]) -> list[Hash]:
    return [header_hash(block.header) for block in blocks]


def held(tree: BlockTree) -> set[Hash]:
    return {block.digest for block in tree.held()}


def test_a_line_and_what_is_missing_from_it() -> None:
    tree, blocks = BlockTree(GENESIS, 0, 0), line_of(4)
    names = digests(blocks)
    for place in (3, 1, 0):
        add(tree, blocks[place])
    assert tree.first_missing(GENESIS) is None
    assert tree.first_missing(names[3]) == names[2]
    assert tree.first_missing(names[1]) is None
    assert tree.first_missing(Hash(b"\1" * 32)) == b"\1" * 32
    add(tree, blocks[2])
    assert [block.digest for block in tree.line(names[3])] == names
    assert tree.line(GENESIS) == []
    assert [child.digest for child in tree.children(names[0])] == [names[1]]


def test_a_block_is_held_once_and_only_above_the_final_height() -> None:
    tree, blocks = BlockTree(GENESIS, 0, 0), line_of(2)
    first = tree.add(blocks[0], b"body")
    assert tree.add(blocks[0], b"other") is first
    assert isinstance(first, HeldBlock)
    assert first.body == b"body"
    tree.finalize(first.digest)
    assert tree.add(blocks[0], b"body") is None
    assert tree.add(make(1, GENESIS, 9), b"body") is None
    assert tree.add(blocks[1], b"body") is not None


def test_its_blocks_are_bounded() -> None:
    tree = BlockTree(GENESIS, 0, 0, BlockLimits(max_held_blocks=2))
    add(tree, make(1, GENESIS, 1))
    add(tree, make(1, GENESIS, 2))
    assert tree.add(make(1, GENESIS, 3), b"") is None


def test_its_bytes_are_bounded() -> None:
    tree = BlockTree(GENESIS, 0, 0, BlockLimits(max_held_bytes=10))
    add(tree, make(1, GENESIS, 1))
    add(tree, make(1, GENESIS, 2))
    assert tree.add(make(1, GENESIS, 3), b"123") is None
    assert tree.add(make(1, GENESIS, 3), b"12") is not None
    tree.finalize(header_hash(make(1, GENESIS, 3).header))
    assert tree.held() == []
    assert tree.add(make(2, tree.final, 3), b"x" * 10) is not None, "the bytes of what was forgotten are free again"


def full(most: int = 2) -> BlockTree:
    """A tree that has no room: its blocks are children of the final one."""
    tree = BlockTree(GENESIS, 0, 0, BlockLimits(max_held_blocks=most))
    for salt in range(1, most + 1):
        add(tree, make(1, GENESIS, salt))
    return tree


def test_what_was_asked_for_always_fits() -> None:
    tree, parent = full(), make(1, GENESIS, 4)
    child = make(2, header_hash(parent.header), 5)
    assert tree.add(child, b"") is None
    for block in (child, parent):
        assert tree.add(block, b"", is_asked_for=True) is not None
    assert tree.first_missing(header_hash(child.header)) is None


def test_a_line_goes_on_by_blocks_without_transactions_if_the_tree_is_full() -> None:
    tree, parent = full(), header_hash(make(1, GENESIS, 1).header)
    for height in range(2, 9):
        assert tree.add(make(height, parent, height), b"") is None
        parent = add(tree, make(height, parent, height, ()))
    assert len(tree.line(parent)) == 8


def test_of_blocks_without_a_whole_line_a_full_tree_takes_one() -> None:
    tree, stray = full(), make(5, b"\7" * 32, transactions=())
    assert tree.add(make(5, b"\7" * 32), b"") is None
    add(tree, stray)
    assert tree.add(make(6, b"\x08" * 32, transactions=()), b"") is None
    add(tree, make(2, header_hash(make(1, GENESIS, 1).header), 9, ()))
    assert header_hash(stray.header) not in tree, "it made room for a block that leads on"


def test_executed_means_final_or_valid() -> None:
    tree, blocks = BlockTree(GENESIS, 0, 0), line_of(1)
    (name,) = digests(blocks)
    add(tree, blocks[0])
    assert tree.is_executed(GENESIS)
    for state in BlockState:
        block = tree.get(name)
        assert block is not None
        block.state = state
        assert tree.is_executed(name) == (state is BlockState.VALID)
    assert not tree.is_executed(Hash(b"\1" * 32))


def test_finality_keeps_what_descends_and_what_may_yet() -> None:
    """One branch becomes final; the other goes with all its children; a block whose parent is unknown stays."""
    tree = BlockTree(GENESIS, 0, 0)
    chosen, other = line_of(4, salt=1), line_of(5, salt=2)
    fork = line_of(2, digests(chosen)[0], 1, salt=3)
    stray = make(5, b"\7" * 32)
    for block in (*chosen, *other, *fork, stray):
        add(tree, block)
    tree.finalize(digests(chosen)[0])
    assert held(tree) == {*digests(chosen)[1:], *digests(fork), header_hash(stray.header)}
    tree.finalize(digests(chosen)[1])
    assert held(tree) == {*digests(chosen)[2:], header_hash(stray.header)}
    assert (tree.final, tree.final_height) == (digests(chosen)[1], 2)
    with pytest.raises(AssertionError):
        tree.finalize(digests(chosen)[3])


def test_held_blocks_come_by_height() -> None:
    tree, blocks = BlockTree(GENESIS, 0, 0), line_of(4)
    for block in reversed(blocks):
        add(tree, block)
    assert [block.height for block in tree.held()] == [1, 2, 3, 4]


def test_a_block_on_another_parent_of_the_final_height_is_dead() -> None:
    """Its parent never came here: another block of that height is final."""
    tree = BlockTree(GENESIS, 0, 0)
    final, rival = make(1, GENESIS, 1), make(1, GENESIS, 2)
    orphan = make(2, header_hash(rival.header), 3)
    above = make(3, header_hash(orphan.header), 4)
    for block in (final, orphan, above):
        add(tree, block)
    tree.finalize(header_hash(final.header))
    assert tree.held() == []
    assert tree.add(orphan, b"") is None
    assert tree.add(make(2, tree.final, 3), b"") is not None
