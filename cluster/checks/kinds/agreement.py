"""Checks of the served chains: equal blocks, the state roots of each validator's own execution, consistency."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cluster.audit.books import Books
from cluster.audit.chains import heights_apart, heights_held_by_two
from cluster.checks.kind import CheckKind, Subject
from cluster.checks.verdict import Result, examples
from cluster.common.outcome import Outcome
from cluster.common.wording import counted

ROOT_DIGITS: Final = 16


class Agreement(CheckKind):
    """All validators hold the same block at every height; heights that only some hold are compared among those."""

    name = "agreement"
    SUBJECT = Subject.CHAIN
    RULES = ("same block",)

    def needed(self) -> Mapping[str, int]:
        heights = self.record.scenario.success.heights_compared
        return {"same block": heights if len(self.books.judged) > 1 else 0}

    def judge(self) -> Result:
        served, last = self.books.served, self.highest
        chains = [chain for _, chain in served]
        differences, compared = [], heights_held_by_two(chains, last)
        for height in heights_apart(chains):
            blocks = {name: chain.at(height) for name, chain in served}
            held = {name: block.block_hash for name, block in blocks.items() if block is not None}
            if height <= last and len(set(held.values())) > 1:
                differences.append(f"height {height}: {_groups(held)}")
        if differences:
            return Outcome.FAIL, f"different blocks at {examples(differences)}"
        self.times["same block"] = compared
        return self.unless_vacuous(f"the same block at all {_compared(self.books)}")


class StateRoots(CheckKind):
    """Every validator's own execution gave the header's state root, the same as the others', at every height.

    The first headers of the chain have the root that the specification gives.
    """

    name = "state_roots"
    SUBJECT = Subject.CHAIN
    RULES = ("computed roots",)

    def needed(self) -> Mapping[str, int]:
        scenario = self.record.scenario
        judged = max(1, len(self.books.judged) - len(scenario.validators.late))
        return {"computed roots": scenario.success.heights_compared * judged}

    def judge(self) -> Result:
        again = self.record.reexecuted
        problems = []
        if again is not None and again.reason:
            problems.append(f"two executions of block {again.heights + 1} differ: {again.reason}")
        problems += [
            f"{told.validator} diverged at height {told.height} ({told.reason or 'no reason given'}):"
            f" {two_roots('expected root', told.expected_root, told.computed_root)}"
            for told in self.books.divergences
        ]
        compared = 0
        for name, chain in self.books.served:
            compared += len(chain)
            for height in chain.wrong_roots:
                block = chain.at(height)
                assert block is not None, "the chain has it"
                problems.append(
                    f"{name} at height {height}:"
                    f" {two_roots('header root', block.header_root.hex(), block.computed_root.hex())}"
                )
        problems += self.findings()
        if problems:
            return Outcome.FAIL, examples(problems)
        self.times["computed roots"] = compared
        detail = f"{compared:,} computed roots equal their headers', {_compared(self.books)}"
        if again is not None:
            detail += f"; {again.heights:,} heights executed again in another process gave the same"
        return self.unless_vacuous(detail)


class Chain(CheckKind):
    """The hash chain, the roots over transactions and receipts, and the nonces of the served bytes are consistent."""

    name = "chain"
    SUBJECT = Subject.CHAIN
    RULES = ("blocks as specified", "transactions as specified")

    def needed(self) -> Mapping[str, int]:
        success = self.record.scenario.success
        return dict(zip(self.RULES, (success.heights_compared, success.transactions), strict=True))

    def judge(self) -> Result:
        books, ledger = self.books, self.books.ledger
        self.times = dict(zip(self.RULES, (ledger.height, ledger.transactions), strict=True))
        problems = self.findings()
        unread = [
            f"{validator.name}: the block at height {validator.first_height + read} cannot be read"
            for validator in books.judged
            if (read := len(books.chains[validator.name])) < len(validator.blocks)
        ]
        missing = [
            f"{validator.name}: no validator served the blocks below height {validator.first_height}, with which it"
            " begins"
            for validator in books.seen
            if len(books.chain) < validator.first_height - 1
        ]
        if problems or unread or missing:
            is_for_want_of_time = self.record.interrupted and not problems and not unread
            verdict = Outcome.INCONCLUSIVE if is_for_want_of_time else Outcome.FAIL
            return verdict, examples([*unread, *missing, *problems])
        transactions = counted(ledger.transactions, "transaction")
        return self.unless_vacuous(f"{counted(ledger.height, 'block')} with {transactions} hang together")


def _compared(books: Books) -> str:
    late = [f"{v.name} from height {v.first_height:,} on" for v in books.seen if v.first_height > 1]
    byzantine = [v.name for v in books.record.validators if v.byzantine]
    notes = [*late, f"not of {', '.join(byzantine)}, byzantine"] if byzantine else late
    who = counted(len(books.seen), "honest validator" if byzantine else "validator")
    heights = min((books.chains[validator.name].tip for validator in books.seen), default=0)
    return f"{counted(heights, 'height')} of {who}" + (f" ({', '.join(notes)})" if notes else "")


def _groups(held: dict[str, bytes]) -> str:
    by_hash: dict[bytes, list[str]] = {}
    for name, block_hash in held.items():
        by_hash.setdefault(block_hash, []).append(name)
    ordered = sorted(by_hash.items(), key=lambda item: -len(item[1]))
    return ", ".join(f"{' and '.join(names)} {_short_root(digest.hex())}" for digest, names in ordered)


def _short_root(text: str) -> str:
    return f"{text[:ROOT_DIGITS]}…" if text else "none"


def two_roots(what: str, right: str, computed: str) -> str:
    """Two state roots in words, with enough digits to tell them apart; ``what`` the first one is.

    They may be equal: then something else of the block differs, such as its receipts.
    """
    if right == computed and right:
        return f"{what} {_short_root(right)}, computed the same; the difference is elsewhere in the header"
    shorter = min(len(right), len(computed))
    same = next((i for i in range(shorter) if right[i] != computed[i]), shorter)
    digits = max(ROOT_DIGITS, same + 4)
    texts = [f"{text[:digits]}{'…' * (digits < len(text))}" if text else "none" for text in (right, computed)]
    return f"{what} {texts[0]}, computed {texts[1]}"
