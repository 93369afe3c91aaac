"""Checks of the served chains: equal blocks, the state roots of each validator's own execution, consistency."""

from __future__ import annotations

from cluster.audit.books import Books
from cluster.audit.served.chains import heights_apart, heights_held_by_two
from cluster.audit.violation import CHAIN, STATE_ROOTS
from cluster.checks.excuses import compared_text, finding_texts, highest, short_root, two_roots, unless_vacuous
from cluster.checks.verdict import Check, examples
from cluster.common.outcome import Outcome
from cluster.common.wording import counted
from cluster.record.rules import AnswerRule


def check_agreement(books: Books) -> Check:
    """All validators hold the same block at every height; heights that only some hold are compared among those."""
    served, last = books.served, highest(books)
    chains = [chain for _, chain in served]
    differences, compared = [], heights_held_by_two(chains, last)
    for height in heights_apart(chains):
        blocks = {name: chain.at(height) for name, chain in served}
        held = {name: block.block_hash for name, block in blocks.items() if block is not None}
        if height <= last and len(set(held.values())) > 1:
            differences.append(f"height {height}: {_groups(held)}")
    if differences:
        return Check("agreement", Outcome.FAIL, f"different blocks at {examples(differences)}")
    return unless_vacuous(
        books, "agreement", f"the same block at all {compared_text(books)}", {AnswerRule.SAME_BLOCK: compared}
    )


def check_state_roots(books: Books) -> Check:
    """Every validator's own execution gave the header's state root, the same as the others', at every height.

    The first headers of the chain have the root that the specification gives.
    """
    again = books.record.reexecuted
    problems = []
    if again is not None and again.reason:
        problems.append(f"two executions of block {again.heights + 1} differ: {again.reason}")
    problems += [
        f"{told.validator} diverged at height {told.height} ({told.reason or 'no reason given'}):"
        f" {two_roots('expected root', told.expected_root, told.computed_root)}"
        for told in books.divergences
    ]
    compared = 0
    for name, chain in books.served:
        compared += len(chain)
        for height in chain.wrong_roots:
            block = chain.at(height)
            assert block is not None, "the chain has it"
            problems.append(
                f"{name} at height {height}:"
                f" {two_roots('header root', block.header_root.hex(), block.computed_root.hex())}"
            )
    problems += finding_texts(books, STATE_ROOTS)
    if problems:
        return Check("state_roots", Outcome.FAIL, examples(problems))
    detail = f"{compared:,} computed roots equal their headers', {compared_text(books)}"
    if again is not None:
        detail += f"; {again.heights:,} heights executed again in another process gave the same"
    return unless_vacuous(books, "state_roots", detail, {AnswerRule.COMPUTED_ROOTS: compared})


def check_chain(books: Books) -> Check:
    """The hash chain, the roots over transactions and receipts, and the nonces of the served bytes are consistent."""
    problems = finding_texts(books, CHAIN)
    unread = [
        f"{validator.name}: the block at height {validator.first_height + read} cannot be read"
        for validator in books.judged
        if (read := len(books.chains[validator.name])) < len(validator.blocks)
    ]
    missing = [
        f"{validator.name}: no validator served the blocks below height {validator.first_height}, with which it begins"
        for validator in books.seen
        if len(books.chain) < validator.first_height - 1
    ]
    if problems or unread or missing:
        is_for_want_of_time = books.record.interrupted and not problems and not unread
        verdict = Outcome.INCONCLUSIVE if is_for_want_of_time else Outcome.FAIL
        return Check("chain", verdict, examples([*unread, *missing, *problems]))
    transactions = counted(books.ledger.transactions, "transaction")
    detail = f"{counted(books.ledger.height, 'block')} with {transactions} hang together"
    return unless_vacuous(books, "chain", detail)


def _groups(held: dict[str, bytes]) -> str:
    by_hash: dict[bytes, list[str]] = {}
    for name, block_hash in held.items():
        by_hash.setdefault(block_hash, []).append(name)
    ordered = sorted(by_hash.items(), key=lambda item: -len(item[1]))
    return ", ".join(f"{' and '.join(names)} {short_root(digest.hex())}" for digest, names in ordered)
