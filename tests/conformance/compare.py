"""The validator's answer to a case, the specification's, and the first place where they differ."""

import json
import sys
from dataclasses import replace
from typing import Any

from cluster.audit.specified.chain import spec_chain
from cluster.audit.specified.roots import StateRoots
from cluster.tools.inspect.conform.case import Page
from cluster.tools.inspect.conform.cases.crowded import crowded_case
from cluster.tools.inspect.t8n import ShownChain, outcome_of
from cluster.tools.inspect.t8n_by_spec import answer_and_rules, execute_page, final_page, root_page
from cluster.tools.inspect.t8n_input import InputBlock, read_request
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


def difference(ours: Any, theirs: Any, path: str = "$") -> str | None:
    """The first JSON path at which two values differ, and how; None when they are the same."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        if ours.keys() != theirs.keys():
            return f"{path}: only in the first {sorted(ours.keys() - theirs.keys())}, " + (
                f"only in the second {sorted(theirs.keys() - ours.keys())}"
            )
        pairs = [(f"{path}.{name}", ours[name], theirs[name]) for name in ours]
    elif isinstance(ours, list) and isinstance(theirs, list):
        pairs = [(f"{path}[{i}]", a, b) for i, (a, b) in enumerate(zip(ours, theirs, strict=False))]
        if len(ours) != len(theirs):
            pairs.append((f"{path}.length", len(ours), len(theirs)))
    else:
        same = type(ours) is type(theirs) and ours == theirs
        return None if same else f"{path}: {ours!r} in the first, {theirs!r} in the second"
    return next((found for where, a, b in pairs if (found := difference(a, b, where))), None)


def compare(genesis: Page, blocks: list[Page]) -> str | None:
    """How the validator (first) differs from the specification (second) on one case: in its answer, or in its state."""
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


def main(arguments: list[str]) -> int:
    """`python -m tests.conformance.compare SEED [MAX_BLOCKS]`: says how the two differ on a crowded case."""
    seed, *blocks = (int(argument) for argument in arguments)
    found = compare(*crowded_case(seed, *blocks))
    print(found or "the same")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
