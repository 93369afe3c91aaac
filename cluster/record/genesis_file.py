"""Genesis files: SPEC §17's ``G`` with a chain id and the validators' keys, as JSON.

``{"chain_id", "validators": [hex key], "policy"?, "preset"?, "params": {NAME: value}, "system_deployers": [address],
"accounts": {address: {"balance": n}}, "actors": {address: {"balance": n, "code", "deployer": address, "gba"?}},
"runners": [address], "epochs": [{"first_view": n, "members": [index]}]}``. A policy is a name, or ``{"name",
"source", "parameters"?: {name: value}}`` of a user's Python file, which is executed.
Written files name every parameter, and also the preset. Integers may be decimal strings. A file with any error is
rejected as a whole, with one line that names the JSON path and the correct form.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from cluster.common import strict_json as json_input
from cluster.common.errors import BadInput
from cluster.common.files import ENCODING
from cluster.common.strict_json import Wrong
from cluster.common.suggestions import meant_or_known
from validator.chain.genesis import Genesis, GenesisActor, GenesisAgent, GenesisEpoch, Policy
from validator.policies.own import PolicyError, read_policy, with_parameters
from validator.primitives.params import PARAMETER_NAMES, ParameterError, Parameters, UnknownParameter
from validator.primitives.types import AMOUNT_LIMIT, PRICE_LIMIT, Address, address_text
from validator.pvm.deployment import refusal

ALLOWED_AGENTS: Final = frozenset({"builtin:fixed"})
AGENT_FIELDS: Final = frozenset({"code", "max_fee_per_cycle", "max_priority_fee_per_cycle"})
KEY_BYTES: Final = 32
CHAIN_FIELDS: Final = frozenset({"policy", "preset", "params", "system_deployers", "accounts", "actors", "runners"})
"""Fields about the chain, not about its validators."""
NEEDED_FIELDS: Final = frozenset({"chain_id", "validators"})
FIELDS: Final = CHAIN_FIELDS | NEEDED_FIELDS | {"epochs"}
POLICY_FIELDS: Final = ("name", "source")
EPOCH_FIELDS: Final = frozenset({"first_view", "members"})
VIEW_LIMIT: Final = 2**63


def to_json(genesis: Genesis) -> str:
    """The genesis as JSON text."""
    return json.dumps(genesis_page(genesis), indent=1) + "\n"


def genesis_page(genesis: Genesis) -> dict[str, Any]:
    """The content of a genesis file, addresses in ascending order."""
    accounts = {address_text(at): {"balance": balance} for at, balance in sorted(genesis.accounts.items())}
    actors = {
        address_text(at): {
            "balance": actor.balance,
            "code": actor.code,
            "deployer": address_text(actor.deployer),
            "gba": None if actor.agent is None else asdict(actor.agent),
        }
        for at, actor in sorted(genesis.actors.items())
    }
    whole: dict[str, Any] = {
        "chain_id": genesis.chain_id,
        "validators": [key.hex() for key in genesis.validators],
        "policy": _policy_page(genesis),
        "preset": genesis.preset,
        "params": genesis.parameters.to_names(),
        "system_deployers": [address_text(address) for address in genesis.system_deployers],
        "accounts": accounts,
        "actors": actors,
    }
    if genesis.runners:
        whole["runners"] = [address_text(address) for address in genesis.runners]
    if genesis.epochs:
        whole["epochs"] = [asdict(epoch) for epoch in genesis.epochs]
    return whole


def from_json(text: str, source: str = "genesis") -> Genesis:
    """The genesis that a JSON text describes. Raises :class:`BadInput`; ``source`` names the text in its message.

    A caller that executes it shows its code to the gate (:mod:`cluster.scenario.code.gate`).
    """
    try:
        return _genesis(json_input.mapping(json_input.parse(text), "$", FIELDS, NEEDED_FIELDS))
    except Wrong as error:
        raise BadInput(f"{source}: {error}") from None


def read_genesis(path: Path) -> Genesis:
    """The genesis in a file. Raises :class:`BadInput`."""
    try:
        text = path.read_text(encoding=ENCODING)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return from_json(text, str(path))


def chain_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """The :data:`CHAIN_FIELDS` of a file as fields of a :class:`Genesis`, without the preset's name. Raises
    :class:`Wrong`."""
    accounts = _accounts(given.get("accounts", {}))
    return {
        **_policy(given.get("policy", Policy.CIP1.value)),
        "parameters": _params(given.get("params", {}), given.get("preset")),
        "accounts": accounts,
        "actors": _actors(given.get("actors", {}), accounts),
        "system_deployers": _deployers(given.get("system_deployers", [])),
        "runners": _runners(given.get("runners", [])),
    }


def _params(given: Any, preset: Any) -> Parameters:
    if not isinstance(given, dict):
        raise Wrong(f"params: expected an object, got {json_input.kind(given)}")
    if preset is not None and not isinstance(preset, str):
        raise Wrong(f"preset: expected a name or null, got {json_input.kind(preset)}")
    try:
        return Parameters.from_names(given, preset)
    except UnknownParameter as error:
        raise Wrong(f"params.{error}; {meant_or_known(error.name, PARAMETER_NAMES)}") from None
    except ParameterError as error:
        raise Wrong(str(error) if str(error).startswith("preset") else f"params.{error}") from None


def _policy_page(genesis: Genesis) -> str | dict[str, Any]:
    own = genesis.policy_file
    if own is None:
        return genesis.policy.value
    stated = {"parameters": genesis.policy_parameters} if own.parameters else {}
    return {"name": own.name, "source": own.source, **stated}


def _policy(given: Any) -> dict[str, Any]:
    """The fields of a genesis about its policy: a shipped one's name, or name and text of a user's file."""
    if isinstance(given, dict):
        fields = json_input.mapping(given, "policy", {*POLICY_FIELDS, "parameters"}, POLICY_FIELDS)
        name, source = (json_input.text(fields[each], f"policy.{each}") for each in POLICY_FIELDS)
        values = json_input.items(fields.get("parameters", {}), "policy.parameters")
        try:
            policy, policy_file = read_policy(name, source)
            policy_file = with_parameters(policy_file, dict(values))
        except PolicyError as error:
            raise Wrong(f"policy: {error}") from None
        except ParameterError as error:
            raise Wrong(f"policy.parameters.{error}") from None
        return {"policy": policy, "policy_file": policy_file}
    known = [policy.value for policy in Policy]
    if json_input.text(given, "policy") not in known:
        raise Wrong(f"policy: {given[:64]!r} is unknown; known: {', '.join(known)}")
    return {"policy": Policy(given)}


def _accounts(given: Any) -> dict[Address, int]:
    accounts: dict[Address, int] = {}
    for text, entry in json_input.items(given, "accounts"):
        path = f"accounts.{text[:64]}"
        owner = json_input.owner(text, path, accounts)
        fields = json_input.mapping(entry, path, {"balance"}, {"balance"})
        accounts[owner] = json_input.integer(fields["balance"], f"{path}.balance", AMOUNT_LIMIT)
    return accounts


def _actors(given: Any, accounts: Iterable[Address]) -> dict[Address, GenesisActor]:
    taken = set(accounts)
    actors: dict[Address, GenesisActor] = {}
    for text, entry in json_input.items(given, "actors"):
        path = f"actors.{text[:64]}"
        owner = json_input.owner(text, path, taken)
        taken.add(owner)
        fields = json_input.mapping(entry, path, {"balance", "code", "deployer", "gba"}, {"code", "deployer"})
        code = json_input.text(fields["code"], f"{path}.code")
        if (problem := refusal(code)) is not None:
            raise Wrong(f"{path}.code: {problem}")
        actors[owner] = GenesisActor(
            code=code,
            deployer=json_input.address(fields["deployer"], f"{path}.deployer"),
            balance=json_input.integer(fields.get("balance", 0), f"{path}.balance", AMOUNT_LIMIT),
            agent=_agent(fields.get("gba"), f"{path}.gba"),
        )
    return actors


def _deployers(given: Any) -> tuple[Address, ...]:
    listed = json_input.sequence(given, "system_deployers")
    return tuple(json_input.address(item, f"system_deployers[{i}]") for i, item in enumerate(listed))


def _runners(given: Any) -> tuple[Address, ...]:
    runners: list[Address] = []
    for number, item in enumerate(json_input.sequence(given, "runners")):
        path = f"runners[{number}]"
        runners.append(json_input.owner(json_input.text(item, path), path, runners))
    return tuple(runners)


def _agent(given: Any, path: str) -> GenesisAgent | None:
    if given is None:
        return None
    fields = json_input.mapping(given, path, AGENT_FIELDS, AGENT_FIELDS)
    code = json_input.text(fields["code"], f"{path}.code")
    if code not in ALLOWED_AGENTS:
        raise Wrong(f"{path}.code: {code[:64]!r} is unknown; known: {', '.join(sorted(ALLOWED_AGENTS))}")
    max_fee, priority = (
        json_input.integer(fields[name], f"{path}.{name}", PRICE_LIMIT)
        for name in ("max_fee_per_cycle", "max_priority_fee_per_cycle")
    )
    return GenesisAgent(code, max_fee, priority)


def _genesis(given: dict[str, Any]) -> Genesis:
    chain_id = json_input.text(given["chain_id"], "chain_id")
    if not chain_id:
        raise Wrong("chain_id: expected a name, got an empty text")
    return Genesis(
        chain_id=chain_id,
        validators=_validators(given["validators"]),
        preset=given.get("preset"),
        epochs=_epochs(given.get("epochs", [])),
        **chain_fields(given),
    )


def _epochs(given: Any) -> tuple[GenesisEpoch, ...]:
    epochs = []
    for number, item in enumerate(json_input.sequence(given, "epochs")):
        path = f"epochs[{number}]"
        fields = json_input.mapping(item, path, EPOCH_FIELDS, EPOCH_FIELDS)
        first_view = json_input.integer(fields["first_view"], f"{path}.first_view", VIEW_LIMIT)
        listed = json_input.sequence(fields["members"], f"{path}.members")
        members = [json_input.integer(each, f"{path}.members[{i}]", VIEW_LIMIT) for i, each in enumerate(listed)]
        epochs.append(GenesisEpoch(first_view, tuple(members)))
    return tuple(epochs)


def _validators(given: Any) -> tuple[bytes, ...]:
    listed = json_input.sequence(given, "validators")
    keys = [json_input.hex_bytes(item, f"validators[{i}]", KEY_BYTES) for i, item in enumerate(listed)]
    if not keys:
        raise Wrong("validators: expected at least one key")
    if len(set(keys)) != len(keys):
        raise Wrong("validators: the same key is given twice")
    return tuple(keys)
