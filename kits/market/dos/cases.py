"""The plan of a scorecard: a run of each attack with each variant and seed, and the same runs without an attack.

A *variant* is a policy with parameters. All runs have the scenario's honest users, with the same numbers, keys and
choices; attackers come after them in the list of users. The scenario's attacking groups are not honest users. Without
``--attack`` these groups are scored together, as the attack :data:`OWN`, in the heights in which they act.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

from cluster.common.errors import BadInput
from cluster.common.suggestions import unknown
from cluster.record.run import Backend
from cluster.scenario import Scenario
from cluster.scenario.files import change_scenario, scenario_from
from cluster.scenario.overrides import Change, SettingError, parse_setting
from kits.market.dos.measures import Window, attack_window
from kits.market.dos.section import ATTACK_NAMES, DosSection
from kits.market.trials import Trial
from loadgen.workloads.actor_program import is_program_path

OWN: Final = "scenario"
"""Name of the attack that consists of the scenario's own attacking groups."""
BASELINE: Final = ""
"""In place of an attack's name: a run without an attack."""
POLICIES: Final[Mapping[str, tuple[str, str | None]]] = {
    "cip1": ("cip1", None),
    "hardened": ("cip1", "hardened"),
    "fifo": ("fifo", None),
    "gba_auction": ("gba_auction", None),
    "bias_auction": ("bias_auction", None),
}
"""Policy and preset, keyed by variant name."""
QUICK_HEIGHT: Final = 40
QUICK_DRAIN_BLOCKS: Final = 5
QUICK: Final = (
    Change("stop.height", QUICK_HEIGHT),
    Change("stop.drain_blocks", QUICK_DRAIN_BLOCKS),
    Change("dos.from_height", QUICK_HEIGHT // 4),
    Change("dos.until_height", QUICK_HEIGHT * 5 // 8),
)
"""Changes of a scenario that make its runs short, for a first look at every attack (``--quick``)."""


class Variant(NamedTuple):
    """A scheduler policy with chain parameters, as changes of the scenario."""

    name: str
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """All runs of a scorecard. Plain data, since it is sent to worker processes."""

    name: str
    """Name of the scenario."""
    variants: tuple[str, ...]
    attacks: tuple[str, ...]
    seeds: tuple[int, ...]
    window: Window
    scenarios: dict[tuple[str, str], str]
    """Scenarios as JSON, keyed by variant and attack."""
    backend: Backend = "sim"

    def trial(self, variant: str, attack: str, seed: int) -> Trial:
        """The run of a variant under an attack, or without one (:data:`BASELINE`)."""
        return Trial(self.name, (variant, attack), seed)

    @property
    def trials(self) -> list[Trial]:
        """All runs: first those without an attack, then those with an attack, seed by seed."""
        runs = [(BASELINE, seed) for seed in self.seeds]
        runs += [(attack, seed) for seed in self.seeds for attack in self.attacks]
        return [self.trial(variant, attack, seed) for attack, seed in runs for variant in self.variants]

    def scenario(self, variant: str, attack: str) -> Scenario:
        return Scenario.model_validate_json(self.scenarios[variant, attack])


def make_plan(
    scenario: Scenario,
    attacks: Sequence[str],
    variants: Sequence[Variant],
    seeds: Sequence[int],
    is_quick: bool,
    backend: Backend = "sim",
) -> Plan:
    """The plan of a scenario's runs. Without ``attacks`` it has the scenario's own attack or, if there is none, all
    known attacks. Raises :class:`BadInput`."""
    if scenario.forks:
        raise BadInput(f"{scenario.name}: forks: stampede dos cannot compare runs with forks")
    scenario = change_scenario(scenario, QUICK if is_quick else (), f"{scenario.name} with --quick")
    has_own = any(group.is_attack for group in scenario.load.users)
    if backend == "live" and not (attacks or has_own):
        raise BadInput("--live: which attack? expected --attack NAME, for each run takes minutes")
    workloads = _named(attacks) or {name: name for name in ([OWN] if has_own else ATTACK_NAMES)}
    names = list(workloads)
    window = _window(scenario, is_own=OWN in workloads)
    made: dict[tuple[str, str], str] = {}
    for variant in variants:
        changed = change_scenario(scenario, variant.changes, f"{scenario.name} as {variant.name}")
        if problem := changed.live_problem if backend == "live" else changed.simulator_problem:
            raise BadInput(f"{scenario.name}: {problem}")
        for attack in (BASELINE, *names):
            attacked = _with_attack(changed, attack, workloads.get(attack))
            made[variant.name, attack] = attacked.model_dump_json(exclude_unset=True)
    return Plan(scenario.name, tuple(each.name for each in variants), tuple(names), tuple(seeds), window, made, backend)


def _window(scenario: Scenario, is_own: bool) -> Window:
    """The heights in which attackers act. They come from the section ``load`` if ``is_own`` (the scenario's own
    attack), else from the section ``dos``. Raises :class:`BadInput`."""
    if is_own:
        window = attack_window(scenario.load, scenario.stop.height)
        if window is None:
            raise BadInput(f"{scenario.name}: load: no attacker takes a turn before stop.height")
        return window
    try:
        begins, ends = DosSection.of(scenario).window(scenario.stop.height)
    except ValueError as error:
        raise BadInput(f"{scenario.name}: {error}") from None
    return Window(begins + 1, ends)


def make_variants(scenario: Scenario, policies: Sequence[str], parameters: Sequence[str]) -> list[Variant]:
    """A variant for each policy with each combination of parameters. ``parameters`` have the form ``NAME=VALUE``; a
    repeated name has several values. Raises :class:`BadInput`."""
    changes = {name: policy_changes(name) for name in policies}
    values: dict[str, list[Change]] = {}
    for text in parameters:
        try:
            change = parse_setting(f"chain.params.{text}")
        except SettingError:
            raise BadInput(f"--param {text}: expected NAME=VALUE, such as SCAN_LIMIT=1024") from None
        values.setdefault(change.path, []).append(change)
    found = []
    for policy, chosen in product(dict.fromkeys(policies) or [None], product(*values.values())):
        own = () if policy is None else changes[policy]
        words = [f"{change.path.rpartition('.')[2]}={_value_text(change.value)}" for change in chosen]
        title = _own_policy(scenario) if policy is None else Path(policy).stem if is_program_path(policy) else policy
        found.append(Variant(" ".join([title, *words]), (*own, *chosen)))
    return found


def policy_changes(name: str) -> tuple[Change, ...]:
    """The changes that give a scenario a policy, by its name or the path of a user's file. Raises :class:`BadInput`."""
    if is_program_path(name):
        own = scenario_from({"name": "policy", "chain": {"policy": name}}, f"--policy {name}").chain
        return Change("chain.policy", own.model_dump(mode="json")["policy"]), Change("chain.preset", None)
    if name not in POLICIES:
        raise BadInput(f"--policy: {unknown('policy', name, POLICIES)}")
    policy, preset = POLICIES[name]
    return Change("chain.policy", policy), Change("chain.preset", preset)


def _own_policy(scenario: Scenario) -> str:
    return scenario.chain.preset or scenario.chain.policy_name


def _value_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _named(attacks: Sequence[str]) -> dict[str, Any]:
    """The workloads of the attacks on the command line, in a scenario's form, keyed by attack name."""
    found: dict[str, Any] = {}
    for given in attacks:
        if is_program_path(given):
            name, workload = _own_attack(given)
            if found.setdefault(name, workload) != workload:
                raise BadInput(f"--attack {given}: another attack is named {name}, too; expected different names")
        elif given in ATTACK_NAMES:
            found[given] = given
        else:
            raise BadInput(f"--attack: {unknown('attack', given, ATTACK_NAMES)}")
    return found


def _own_attack(path: str) -> tuple[str, dict[str, Any]]:
    """An attack from a user's file: its name, and its workload in a scenario's form."""
    fields = {"name": "attack", "load": {"users": [{"workload": path}]}}
    (group,) = scenario_from(fields, f"--attack {path}").load.users
    if not group.is_attack:
        raise BadInput(f"--attack {path}: {group.facts.name} is no attack; expected a workload with is_attack = True")
    return group.facts.name, group.model_dump(mode="json")["workload"]


def _with_attack(scenario: Scenario, attack: str, workload: Any) -> Scenario:
    """The scenario with its honest users, followed by the users of an attack.

    Success criteria of a normal run, such as a bound on lateness, are removed, since the scorecard has separate bounds.
    """
    data = scenario.model_dump(mode="json", exclude_unset=True)
    groups = list(zip(scenario.load.users, data.get("load", {}).get("users", []), strict=True))
    users = [given for group, given in groups if not group.is_attack]
    if attack == OWN:
        users += [given for group, given in groups if group.is_attack]
    elif attack != BASELINE:
        users.append(DosSection.of(scenario).group(attack, scenario.stop.height) | {"workload": workload})
    data.setdefault("load", {})["users"] = users
    stall_ms = scenario.success.stall_ms
    data["success"] = {"heights_compared": 1, "transactions": 0, "fires": 0, "stall_ms": stall_ms}
    return scenario_from(data, f"{scenario.name} with {attack or 'no attack'}")


def deployed(scenario: Scenario, attacks: Sequence[str]) -> tuple[str, ...]:
    """The arguments of ``stampede dos`` in a pod, after the scenario. Raises :class:`BadInput` for what the command
    would refuse, and for files, which the pod does not have."""
    for each in attacks:
        if each not in ATTACK_NAMES:
            raise BadInput(f"--command dos: {unknown('attack', each, ATTACK_NAMES)}")
    make_plan(scenario, attacks, make_variants(scenario, (), ()), range(1), is_quick=False)
    return ("--attack", *attacks) if attacks else ()
