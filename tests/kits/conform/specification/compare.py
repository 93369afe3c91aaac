"""The validator's answer to a case, the specification's, and the first place where they differ."""

import json
from dataclasses import replace

from cluster.audit.specified.chain import StateRoots, spec_chain
from kits.conform.case import Page
from kits.conform.difference import first_difference
from kits.conform.t8n import ShownChain, outcome_of
from kits.conform.t8n_by_spec import answer_and_rules, execute_page, final_page, root_page
from kits.conform.t8n_input import InputBlock, read_request
from spec.leaves import leaves
from validator.chain.genesis import Genesis


def read(genesis: Page, blocks: list[Page]) -> tuple[Genesis, list[InputBlock]]:
    """A case as both implementations take it."""
    read_genesis, read_blocks, _ = read_request(json.dumps({"genesis": genesis, "blocks": blocks}).encode())
    return read_genesis, list(read_blocks)


def validators_answer(genesis: Page, blocks: list[Page]) -> Page:
    """What `stampede t8n` answers."""
    return outcome_of(*read(genesis, blocks))


def specs_answer(genesis: Page, blocks: list[Page]) -> Page:
    """What the specification answers, without roots."""
    return answer_and_rules(*read(genesis, blocks))[0]


def difference(ours: Page, theirs: Page) -> str | None:
    """The first place at which two pages differ, and how; None when they are the same."""
    if json.dumps(ours, sort_keys=True) == json.dumps(theirs, sort_keys=True):
        return None
    found = first_difference(theirs, ours)
    return "a number is a text" if found is None else found.text


def compare(genesis: Page, blocks: list[Page]) -> str | None:
    """How the validator differs from the specification, whose answer is expected: in its answer, or in its state."""
    given, inputs = read(genesis, blocks)
    chain, world, roots = ShownChain(given), spec_chain(given), StateRoots()
    root = root_page(roots.root(world))
    for block in inputs:
        for number in range(block.times):
            (page,) = chain.execute(replace(block, times=1))
            said = page.pop("state_root")
            found = difference(page, execute_page(world, block.proposer, block.transactions))
            if number < 8 or number % 64 == 0:  # of many empty blocks not all
                found = found or difference(_hex(dict(chain.view.scan(b""))), _hex(leaves(world)))
            if number == 8:  # a root needs those of all blocks before
                roots.end()
            if root := root_page(roots.root(world)):
                found = found or difference({"state_root": said}, root)
            if found:
                return f"height {world.height}: {found}"
    final = chain.final_page()
    return difference(final, final_page(world) | (root or {"state_root": final["state_root"]}))


def _hex(state: dict[bytes, bytes]) -> dict[str, str]:
    return {key.hex(): value.hex() for key, value in state.items()}
