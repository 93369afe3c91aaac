"""The testnet that a load is put on, and the plan of the load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from cluster.common.errors import BadInput
from cluster.common.limits import is_seed
from cluster.common.strict_yaml import NoYaml, parse
from cluster.scenario import Scenario
from cluster.scenario.files import load_scenario, scenario_from
from cluster.scenario.overrides import Change
from loadgen.client import ClientError, NotFound, ValidatorClient
from loadgen.workloads import LoadPlan, UserGroup
from validator.primitives.params import DEFAULTS, ParameterError, Parameters
from validator.primitives.types import address_text

MIN_INTERVAL_MS: Final = 1
MAX_INTERVAL_MS: Final = 3_600_000
NO_TESTNET: Final = "expected a validator, or a testnet of stampede up"


@dataclass(frozen=True, slots=True)
class Target:
    """The testnet that a load is put on, as its endpoints describe it."""

    validators: tuple[str, ...]
    """Endpoints of validators, ``http://host:port``."""
    chain_id: str
    parameters: Parameters | None
    """Chain parameters in force; ``None`` if the testnet does not serve them."""
    seed: int | None
    """Seed of the genesis, if the testnet's status has it."""


@dataclass(frozen=True, slots=True)
class PlannedLoad:
    """The plan of a load on a running testnet. Its users are accounts in the testnet's genesis."""

    load: LoadPlan
    seed: int
    parameters: Parameters

    def made_open(self) -> PlannedLoad:
        """A copy of the load with open arrival: only the clock decides when turns are due, not earlier answers."""
        return self._with_groups([group.model_copy(update={"arrival": "open"}) for group in self.load.users])

    def scaled(self, factor: float) -> PlannedLoad:
        """The load with ``factor`` times as many turns, as far as intervals of whole milliseconds allow."""
        intervals = [round(group.interval_ms / factor) for group in self.load.users]
        bounded = [min(max(interval, MIN_INTERVAL_MS), MAX_INTERVAL_MS) for interval in intervals]
        return self._with_groups(
            [
                group.model_copy(update={"interval_ms": interval})
                for group, interval in zip(self.load.users, bounded, strict=True)
            ]
        )

    @property
    def turns_per_s(self) -> float:
        """Turns per second of all users together, while no phase of the load changes the rate."""
        return sum(1_000 * group.count / group.interval_ms for group in self.load.users)

    def _with_groups(self, groups: list[UserGroup]) -> PlannedLoad:
        return replace(self, load=self.load.model_copy(update={"users": groups}))


def find_target(urls: Sequence[str]) -> Target:
    """Query endpoints for a description of their testnet. Each may be that of a validator or of a whole testnet. Raises
    :class:`BadInput`."""
    validators: list[str] = []
    seeds: list[int] = []
    for url in urls:
        page = _status(url)
        if "validators" not in page:
            validators.append(url)
            continue
        served, seed = _described(url, page)
        if not served:
            raise BadInput(f"{url}: none of the testnet's validators is up; expected at least one")
        validators += served
        seeds.append(seed)
    chains = {_status(validator).get("chain_id") for validator in validators}
    if len(chains) != 1 or not isinstance(chain_id := chains.pop(), str):
        raise BadInput(f"{', '.join(urls)}: expected validators of one chain")
    return Target(tuple(validators), chain_id, _parameters(validators[0]), seeds[0] if seeds else None)


def _described(url: str, page: dict[str, Any]) -> tuple[list[str], int]:
    """The running validators and the seed, from a testnet's status page. Raises :class:`BadInput`."""
    try:
        up = [each for each in page["validators"] if each["url"] and each["host_is"] == "up"]
        served = [each["url"] for each in up if each.get("pid", 0) is not None]  # an external one need not take load
        seed = page["seed"]
    except KeyError as error:
        raise BadInput(f"{url}: its status page has no {error.args[0]}; {NO_TESTNET}") from None
    except TypeError:
        raise BadInput(f"{url}: its status page has no list of validators; {NO_TESTNET}") from None
    if not is_seed(seed) or not all(isinstance(each, str) and each.startswith("http://") for each in served):
        raise BadInput(f"{url}: its status page has another form; {NO_TESTNET}")
    return served, seed


def plan_of_scenario(target: Target, path: Path, changes: Sequence[Change], seed: int | None) -> PlannedLoad:
    """The load of a scenario file. Raises :class:`BadInput`."""
    scenario = load_scenario(path, changes)
    if scenario.load.is_empty:
        raise BadInput(f"{path}: load.users: the scenario has no load; expected at least one group of users")
    return _planned(target, scenario, seed)


def plan_of_workload(
    target: Target, workload: str, users: int, interval_ms: int, options: Sequence[str], seed: int | None
) -> PlannedLoad:
    """The load of one group of users. Raises :class:`BadInput`."""
    group = {"workload": workload, "count": users, "interval_ms": interval_ms, "options": _options(options)}
    fields = {"name": "load", "validators": {"count": 4}, "stop": {"height": 1}, "load": {"users": [group]}}
    return _planned(target, scenario_from(fields, "--workload"), seed)


def _planned(target: Target, scenario: Scenario, seed: int | None) -> PlannedLoad:
    known = scenario.seed if target.seed is None else target.seed
    parameters = target.parameters or scenario.chain.parameters()
    planned = PlannedLoad(scenario.load, known if seed is None else seed, parameters)
    _check_funds(target, planned)
    return planned


def _check_funds(target: Target, planned: PlannedLoad) -> None:
    """Check that the first and the last user have funds on the testnet; others are not checked. Raises
    :class:`BadInput`."""
    accounts = list(planned.load.genesis_accounts(planned.seed))
    with ValidatorClient(target.validators[0]) as client:
        for number in sorted({0, len(accounts) - 1} if accounts else ()):
            address = accounts[number]
            try:
                balance = client.account(address).get("balance", 0)
            except NotFound:
                balance = 0
            except ClientError as error:
                raise BadInput(str(error)) from None
            if not balance:
                raise BadInput(
                    f"user {number}'s account {address_text(address)} holds nothing on chain {target.chain_id};"
                    " expected a testnet whose genesis has these users: the same load with load.external: true, and"
                    f" seed {planned.seed}"
                )


def _options(given: Sequence[str]) -> dict[str, Any]:
    options = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise BadInput(f"--option {text}: expected NAME=VALUE")
        try:
            options[name] = parse(value)
        except NoYaml as error:
            raise BadInput(f"--option {text}: the value is no YAML: {error.problem}") from None
    return options


def _status(url: str) -> dict[str, Any]:
    with ValidatorClient(url) as client:
        try:
            return client.status()
        except ClientError as error:
            raise BadInput(f"{error}; expected a validator or a testnet at {url}") from None


def _parameters(url: str) -> Parameters | None:
    """Query a validator for the chain parameters in force, with defaults for those that are missing in its answer.

    Returns ``None`` if the validator does not serve them.
    """
    with ValidatorClient(url) as client:
        try:
            given = client.parameters()["parameters"]
            return Parameters.from_names({name: given[name] for name in DEFAULTS.to_names() if name in given})
        except NotFound:
            return None
        except (ClientError, ParameterError, KeyError, TypeError) as error:
            raise BadInput(f"{url}/parameters: {error}") from None
