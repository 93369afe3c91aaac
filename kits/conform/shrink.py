"""Delta debugging of a case: the smallest one that still differs in the same way.

The same way means the same kind of first difference, or the same complaint about a tool that gives no answer. Blocks,
transactions, operations of scripts, fields and entries of the genesis are removed while that holds.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from cluster.common.shrinking import NoCandidate, Path, Shrinker, ddmin, value_at, with_value
from cluster.common.strict_json import Wrong
from kits.conform.case import AnsweredCase, Case, Page
from kits.conform.decode import decoded
from kits.conform.difference import Difference, first_difference
from kits.conform.families.table import ordered_rules
from kits.conform.source import execute_by_spec
from kits.conform.t8n import outcome_of
from kits.conform.t8n_input import blocks_of, genesis_of
from kits.conform.tool import Tool, ToolFailure, Unsupported

MAX_RUNS: Final = 1_500
"""Maximum number of times that the tool is asked while a case is shrunk."""
ALL: Final = -1
"""Position of all transactions of a block."""
MAX_SINGLE: Final = 100
"""A repetition of at least this many empty blocks stays one. Each case with it takes long."""
_DIGITS: Final = re.compile(r"[0-9]+")
OPTIONAL_FIELDS: Final = ("value", "timer_allowance")
SMALLEST: Final = {"max_priority_fee_per_cycle": 0, "value": 0}


@dataclass(frozen=True, slots=True)
class Failure:
    """How a tool fails on a case."""

    kind: str
    detail: str
    expected: Page
    got: Page | None
    """The tool's output; ``None`` if it gave none."""


def expected_answer(case: Case, wants_steps: bool = False) -> Page:
    """This implementation's output for a case. Raises :class:`Wrong` if the input is malformed."""
    if case.decode:
        return decoded(case.decode)
    genesis = genesis_of(case.genesis)
    return outcome_of(genesis, blocks_of(case.blocks, genesis), wants_steps)


def failure_of(case: Case, tool: Tool, has_roots: bool) -> Failure | None:
    """How a tool fails on a case; ``None`` if it does not. Raises :class:`Wrong` if the input is malformed."""
    expected = expected_answer(case)
    try:
        got = tool.answer(case)
    except ToolFailure as failure:
        return Failure(f"no answer: {_DIGITS.sub('#', str(failure))}", str(failure), expected, None)
    except Unsupported:
        return None
    found: Difference | None = first_difference(expected, got, has_roots)
    return None if found is None else Failure(found.kind, found.text, expected, got)


@dataclass(frozen=True, slots=True)
class Shrunk:
    """A shrunk case."""

    case: Case
    failure: Failure
    runs: int
    """How often the tool was asked."""
    rules: tuple[str, ...] = ()
    """Ids of the rules that the expected execution reaches, those that the family is about first."""


def shrink(answered: AnsweredCase, tool: Tool, has_roots: bool = True) -> Shrunk | None:
    """Shrink a case on which a tool fails; ``None`` if it does not fail on it again."""
    failure = failure_of(answered.case, tool, has_roots)
    if failure is None:
        return None
    kind = failure.kind

    def same_failure(case: Case) -> Failure | None:
        try:
            found = failure_of(case, tool, has_roots)
        except Wrong:
            raise NoCandidate from None
        return found if found is not None and found.kind == kind else None

    shrinker = _CaseShrinker(answered.case, failure, same_failure, MAX_RUNS)
    case = shrinker.search()
    return Shrunk(case, shrinker.failure, shrinker.runs, rules_of_case(case))


def rules_of_case(case: Case) -> tuple[str, ...]:
    """Ids of the rules that the execution of a case reaches, those that its family is about first."""
    _, rules = execute_by_spec(case)
    return ordered_rules(case.family, rules)


class _CaseShrinker(Shrinker[Case, Failure]):
    def search(self) -> Case:
        if self.best.decode:
            return self.shrink(self._requests)
        return self.shrink(
            self._single,
            self._end,
            self._blocks,
            self._transactions,
            self._merge,
            self._scripts,
            self._fields,
            self._genesis,
        )

    def _requests(self) -> None:
        """Remove requests about bytes."""
        ddmin(self.best.decode, lambda kept: bool(kept) and self.holds(replace(self.best, decode=kept)))

    @property
    def blocks(self) -> list[Page]:
        """The blocks of the smallest case so far."""
        return self.best.blocks

    def _single(self) -> None:
        """Write short repetitions of empty blocks out, so that each can be removed. A long one stays whole."""
        self._with_blocks(list(_single_blocks(self.blocks)))

    def _with_blocks(self, blocks: list[Page]) -> bool:
        return self.holds(replace(self.best, blocks=blocks))

    def _end(self) -> None:
        """Cut the blocks after the one that differs."""
        found = re.match(r"blocks\[(\d+)\]", self.failure.detail)
        if found is not None:
            self._with_blocks(self.blocks[: int(found[1]) + 1])

    def _blocks(self) -> None:
        """Remove blocks, first without a change of later nonces, then with them."""
        ddmin(self.blocks, lambda kept: bool(kept) and self._with_blocks(kept))
        for at in range(len(self.blocks) - 1, -1, -1):
            if len(self.blocks) > 1 and at < len(self.blocks):
                self._with_blocks(_without_transactions(self.blocks, {(at, ALL)}, True, at))

    def _transactions(self) -> None:
        """Remove transactions one by one, from the last to the first; nonces move up."""
        places = [(i, j) for i, block in enumerate(self.blocks) for j in range(len(block.get("txs", ())))]
        for place in reversed(places):
            for renumbers in (True, False):
                if self._with_blocks(_without_transactions(self.blocks, {place}, renumbers)):
                    break

    def _merge(self) -> None:
        """Put the transactions of two blocks in a row into one."""
        for at in range(len(self.blocks) - 2, -1, -1):
            if at + 1 >= len(self.blocks):
                continue
            blocks = copy.deepcopy(self.blocks)
            first, second = blocks[at], blocks[at + 1]
            if "empty" in first or "empty" in second:
                continue
            txs = [*first.get("txs", ()), *second.get("txs", ())]
            for kept in (first, second):
                merged = {"proposer": kept["proposer"], "txs": txs}
                if self._with_blocks([*blocks[:at], merged, *blocks[at + 2 :]]):
                    break

    def _scripts(self) -> None:
        """Remove operations of scripts, and optional fields of operations."""
        for path in _script_places(self.blocks):
            script = value_at(self.blocks, path)
            if isinstance(script, list) and script:
                ddmin(script, lambda kept, path=path: self._with_blocks(with_value(self.blocks, path, kept)))  # type: ignore[misc]
        for path in list(_operation_places(self.blocks)):
            operation = value_at(self.blocks, path)
            if not isinstance(operation, list) or not operation:
                continue
            if operation[0] == "try":
                self._with_blocks(with_value(self.blocks, path, operation[1]))
            elif isinstance(operation[-1], dict):
                for name in list(operation[-1]):
                    fields = {key: value for key, value in value_at(self.blocks, path)[-1].items() if key != name}
                    self._with_blocks(with_value(self.blocks, (*path, -1), fields))

    def _fields(self) -> None:
        for i, block in enumerate(self.blocks):
            for j, tx in enumerate(block.get("txs", ())):
                for name in OPTIONAL_FIELDS:
                    if name in tx and tx["kind"] != "transfer":
                        fields = {key: value for key, value in self.blocks[i]["txs"][j].items() if key != name}
                        self._with_blocks(with_value(self.blocks, (i, "txs", j), fields))
                for name, least in SMALLEST.items():
                    if name in self.blocks[i]["txs"][j]:
                        self._with_blocks(with_value(self.blocks, (i, "txs", j, name), least))

    def _genesis(self) -> None:
        for name in ("policy", "preset", "runners", "system_deployers"):
            self._without_genesis(name)
        for part in ("params", "actors", "accounts"):
            for name in list(self.best.genesis.get(part, ())):
                self._without_genesis(part, name)
            if not self.best.genesis.get(part, True):
                self._without_genesis(part)
        for address in self.best.genesis.get("actors", {}):
            self._without_genesis("actors", address, "gba")

    def _without_genesis(self, *path: str) -> None:
        genesis = copy.deepcopy(self.best.genesis)
        inner = genesis
        for name in path[:-1]:
            inner = inner[name]
        if inner.pop(path[-1], None) is not None:
            self.holds(replace(self.best, genesis=genesis))


def _single_blocks(blocks: list[Page]) -> Iterator[Page]:
    """Blocks without short repetitions."""
    for block in blocks:
        if int(block.get("empty", MAX_SINGLE)) < MAX_SINGLE:
            yield from ({"proposer": block["proposer"], "txs": []} for _ in range(int(block["empty"])))
        else:
            yield block


def _without_transactions(
    blocks: list[Page], removed: set[tuple[int, int]], renumbers: bool, drops: int | None = None
) -> list[Page]:
    """Blocks without the transactions at some places, and without the block ``drops``.

    If it renumbers, later nonces of their senders are lower by one each.
    """
    gone: list[Page] = []
    kept_blocks: list[Page] = []
    for i, block in enumerate(blocks):
        kept: list[Page] = []
        for j, tx in enumerate(block.get("txs", ())):
            if not removed.isdisjoint({(i, j), (i, ALL)}):
                gone.append(tx)
                continue
            lower = sum(tx["sender"] == other["sender"] and int(other["nonce"]) < int(tx["nonce"]) for other in gone)
            kept.append({**tx, "nonce": int(tx["nonce"]) - lower} if renumbers else tx)
        if i != drops and "empty" in block:
            kept_blocks.append(block)
        elif i != drops:
            kept_blocks.append({"proposer": block["proposer"], "txs": kept})
    return kept_blocks


def _script_places(blocks: list[Page]) -> list[Path]:
    """Places of payloads that are scripts, those of transactions before those inside them."""
    found: list[Path] = []
    for i, block in enumerate(blocks):
        for j, tx in enumerate(block.get("txs", ())):
            found += _scripts_in(tx.get("payload"), (i, "txs", j, "payload"))
    return found


def _scripts_in(script: Any, path: Path) -> list[Path]:
    if not isinstance(script, list):
        return []
    found = [path]
    for k, operation in enumerate(script):
        inner, at = operation, (*path, k)
        while isinstance(inner, list) and len(inner) == 2 and inner[0] == "try":
            inner, at = inner[1], (*at, 1)
        if isinstance(inner, list) and len(inner) == 2 and isinstance(inner[1], dict):
            found += _scripts_in(inner[1].get("payload"), (*at, 1, "payload"))
    return found


def _operation_places(blocks: list[Page]) -> Iterator[Path]:
    for path in _script_places(blocks):
        for k in range(len(value_at(blocks, path))):
            yield (*path, k)
