"""The text of a new policy: every hook of the interface, as it is in a shipped policy."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from textwrap import wrap
from typing import Final

from validator.chain.genesis import Policy
from validator.policies.auction import AuctionPhase
from validator.policies.interface import AuctionPolicyPhase, PolicyPhase, PolicyRules
from validator.policies.registry import PHASES

WIDTH: Final = 108
MODULES: Final = {
    "Iterable": "collections.abc",
    "Iterator": "collections.abc",
    "Sequence": "collections.abc",
    "Timer": "validator.chain.records",
    "Offer": "validator.execution.lane_rules",
    "Candidate": "validator.execution.timer_phase",
    "Meter": "validator.primitives.meter",
    "Parameters": "validator.primitives.params",
}
"""The module of each name that the hooks' annotations have."""


def template(name: str, policy: Policy) -> str:
    """The text of a policy that is derived from a shipped one, and behaves as it. ``name`` is that of its file."""
    phase = PHASES[policy]
    is_auction = issubclass(phase, AuctionPhase)
    title = "".join(part.capitalize() for part in name.replace("_", "-").split("-"))
    title = title if title.isidentifier() else f"Policy{title}"
    rules = [*_hooks(PolicyRules)]
    hooks = [*_hooks(PolicyPhase), *(_hooks(AuctionPolicyPhase, PolicyPhase) if is_auction else ())]
    bases = (phase.__name__, type(phase.rules).__name__)
    lines = [
        f'"""The policy {name}, which behaves as {policy} until you change a hook. Delete the other hooks.',
        "",
        "What a hook is given: validator/policies/interface.py. Units, and how a charge is lowered: docs/policies.md.",
        '"""',
        "",
        *_imports([*rules, *hooks], phase.__module__, bases),
        "",
        "",
        f"class Rules({bases[1]}):",
        *_methods(rules),
        "",
        "",
        f"class {title}({bases[0]}):",
        "    rules = Rules()",
        "    replaces = set()  # what the auditor takes from you: some of 'order', 'prices', 'waiting'",
        "    # policy_parameters = {'most': {'default': 4, 'min': 1, 'max': 9}}, which hooks read as self.own['most']",
        *(["    formula = None  # since the class has a score"] if is_auction else []),
        *_methods(hooks),
        "",
    ]
    return "\n".join(lines)


Hook = tuple[str, inspect.Signature, str]


def _hooks(of: type, without: type = object) -> Iterator[Hook]:
    """The methods of a protocol, with their docstrings."""
    for name, hook in vars(of).items():
        if inspect.isfunction(hook) and not name.startswith("_") and name not in vars(without):
            yield name, inspect.signature(hook), " ".join((inspect.getdoc(hook) or "").split())


def _imports(hooks: list[Hook], module: str, bases: tuple[str, str]) -> Iterator[str]:
    text = " ".join(str(signature) for _, signature, _ in hooks)
    by_module: dict[str, list[str]] = {}
    for name, place in MODULES.items():
        if name in text:
            by_module.setdefault(place, []).append(name)
    by_module[module] = sorted(bases)
    ordered = sorted(by_module, key=lambda place: (place.startswith("validator"), place))
    for place in ordered:
        if place == next((each for each in ordered if each.startswith("validator")), None):
            yield ""
        yield f"from {place} import {', '.join(by_module[place])}"


def _methods(hooks: list[Hook]) -> Iterator[str]:
    for name, signature, text in hooks:
        given = [each for each in signature.parameters.values() if each.name != "self"]
        parameters = "".join(f", {each.name}: {each.annotation}" for each in given)
        yield ""
        yield f"    def {name}(self{parameters}) -> {signature.return_annotation}:"
        first, *rest = wrap(f'"""{text}', WIDTH)
        yield from (f"        {line}" for line in (first, *rest[:-1]) if rest)
        yield f'        {(rest or [first])[-1]}"""'
        call = f"super().{name}({', '.join(each.name for each in given)})"
        yield f"        {call if signature.return_annotation == 'None' else f'return {call}'}"
