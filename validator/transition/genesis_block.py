"""The genesis state and the genesis block, the same for every validator (SPEC §3, §12)."""

from __future__ import annotations

from dataclasses import astuple
from itertools import pairwise
from typing import Final

from msgspec.structs import replace

from validator.chain.block import BlockReceipts, Header, receipts_root
from validator.chain.genesis import Genesis, GenesisAgent, GenesisError
from validator.chain.records import (
    GLOBALS,
    Account,
    BiddingAgent,
    Globals,
    account_key,
    actor_key,
    encode_record,
    runner_key,
    storage_key,
)
from validator.execution.governance import GOVERNED_NAMES, storage_name, storage_text
from validator.primitives.codec import encode, pack_uint, tagged_hash
from validator.primitives.params import DEFAULTS, ParameterError
from validator.primitives.types import (
    AMOUNT_LIMIT,
    SYSTEM_PARAMETERS_ADDRESS,
    ZERO_HASH,
    Hash,
    is_reserved,
)
from validator.pvm.deployment import deployment, refusal

LATER_PARAMETERS: Final = {
    name: value
    for name, value in DEFAULTS.to_names().items()
    if name
    in (
        "WEIGHT_PARTY",
        "MEDIAN_SMOOTHING_MILLI",
        "WEIGHT_CLIP_MIN_MILLI",
        "WEIGHT_CLIP_MAX_MILLI",
        "MAX_WATCHERS_PER_KEY",
    )
}
"""Parameters that the genesis block covers only if they differ from these defaults, so that the genesis blocks of older
chains stay what they were."""


def genesis_batch(genesis: Genesis) -> dict[bytes, bytes | None]:
    """The state of height 0, as keys and values. Raises :class:`GenesisError`."""
    _check(genesis)
    p = genesis.parameters
    records: dict[bytes, object] = {}
    for address, balance in genesis.accounts.items():
        records[account_key(address)] = Account(balance, 0)
    for address, actor in genesis.actors.items():
        records[account_key(address)] = Account(actor.balance, 0)
        deployed = deployment(actor.code, actor.deployer)
        agent = deployed.actor.agent if actor.agent is None else BiddingAgent(*astuple(actor.agent))
        records[actor_key(address)] = replace(deployed.actor, agent=agent)
        if deployed.program_key is not None:
            records[deployed.program_key] = deployed.source
    for name, text in governed_values(genesis).items():
        records[storage_key(SYSTEM_PARAMETERS_ADDRESS, name)] = text.encode()
    for runner in genesis.runners:
        records[runner_key(runner)] = b""
    minted = sum(genesis.accounts.values()) + sum(actor.balance for actor in genesis.actors.values())
    records[GLOBALS] = Globals(
        next_sequence=0,
        next_message=0,
        first_message=0,
        basefee_cycle=p.initial_basefee,
        basefee_cell=p.initial_basefee,
        basefee_lane_timer=p.initial_basefee,
        p50_tip=0,
        last_block_cycle_usage=0,
        live_timers=0,
        minted=minted,
        burned_user=0,
        burned_timer_cycle=0,
        burned_timer_lane=0,
        burned_bidding=0,
    )
    return {key: encode_record(key, record) for key, record in sorted(records.items())}


def governed_values(genesis: Genesis) -> dict[str, str]:
    """The governed parameters in the form of the system account's storage (SPEC §12)."""
    values = genesis.parameters.to_names()
    return {storage_name(name): storage_text(values[name]) for name in GOVERNED_NAMES}


def genesis_header(genesis: Genesis, state_root: bytes) -> Header:
    """The header of the genesis block, given the root of the genesis state.

    Its transactions root is a hash over the whole genesis, so that chains of different genesis files never share a
    block.
    """
    fee = pack_uint(genesis.parameters.initial_basefee)
    empty = BlockReceipts(0, bytes(20), (), (), (), (), (), 0, b"")
    return Header(
        chain_id=genesis.chain_id,
        height=0,
        view=0,
        parent_hash=ZERO_HASH,
        proposer=0,
        transactions_root=_content_hash(genesis),
        receipts_root=receipts_root(empty),
        state_root=state_root,
        basefee_cycle=fee,
        basefee_cell=fee,
        basefee_lane_timer=fee,
        lane_cycles=0,
        lane_cells=0,
        user_cycles=0,
        user_cells=0,
    )


def _content_hash(genesis: Genesis) -> Hash:
    """Hash over the whole content of a genesis, with maps in the order of their keys."""
    accounts = [(address, pack_uint(balance)) for address, balance in sorted(genesis.accounts.items())]
    actors = [
        (address, actor.code, actor.deployer, pack_uint(actor.balance), _agent_content(actor.agent))
        for address, actor in sorted(genesis.actors.items())
    ]
    parameters = [
        (name, storage_text(value))
        for name, value in sorted(genesis.parameters.to_names().items())
        if name not in LATER_PARAMETERS or value != LATER_PARAMETERS[name]
    ]
    deployers = sorted(genesis.system_deployers)
    content: tuple[object, ...]
    content = (genesis.chain_id, genesis.policy.value, genesis.validators, parameters, accounts, actors, deployers)
    if genesis.policy_file is not None:
        file = genesis.policy_file
        stated = ([(name, str(value)) for name, value in file.parameters],) if file.parameters else ()
        content = (*content, ("policy file", file.name, file.source, *stated))
    if genesis.epochs:
        content = (*content, [(epoch.first_view, epoch.members) for epoch in genesis.epochs])
    if genesis.runners:
        content = (*content, ("runners", sorted(genesis.runners)))
    return tagged_hash(b"genesis", encode(content))


def _agent_content(agent: GenesisAgent | None) -> object:
    if agent is None:
        return None
    return agent.code, pack_uint(agent.max_fee_per_cycle), pack_uint(agent.max_priority_fee_per_cycle)


def _check_epochs(genesis: Genesis) -> None:
    before = 0
    for number, epoch in enumerate(genesis.epochs):
        members = epoch.members
        if epoch.first_view <= before:
            raise GenesisError(f"epochs[{number}].first_view: {epoch.first_view} is not above {before}")
        if not members or any(left >= right for left, right in pairwise(members)):
            raise GenesisError(f"epochs[{number}].members: expected validators in ascending order, at least one")
        if not 0 <= members[0] <= members[-1] < len(genesis.validators):
            raise GenesisError(f"epochs[{number}].members: there are validators 0 to {len(genesis.validators) - 1}")
        before = epoch.first_view


def _check_policy(genesis: Genesis) -> None:
    given = genesis.policy_file
    if given is None:
        return
    from validator.policies.own import PolicyError, read_policy, with_parameters  # loads the timer phases

    try:
        policy, policy_file = read_policy(given.name, given.source)
        policy_file = with_parameters(policy_file, dict(given.parameters))
    except (PolicyError, ParameterError) as error:
        raise GenesisError(f"policy: {error}") from None
    if policy_file.parameters != given.parameters:
        raise GenesisError(f"policy: has not the parameters that {given.file} states, in the order of their names")
    if (policy, policy_file) != (genesis.policy, given):
        raise GenesisError(
            f"policy file {given.file} is derived from {policy} and replaces {sorted(policy_file.replaces)}, not from"
            f" {genesis.policy} and {sorted(given.replaces)}"
        )


def _check(genesis: Genesis) -> None:
    if not genesis.validators or len(set(genesis.validators)) != len(genesis.validators):
        raise GenesisError("validators: expected at least one, all different")
    _check_policy(genesis)
    _check_epochs(genesis)
    both = sorted(set(genesis.accounts) & set(genesis.actors))
    if both:
        raise GenesisError(f"0x{both[0].hex()} is given as account and as actor")
    if len(set(genesis.runners)) != len(genesis.runners):
        raise GenesisError("runners: expected all different")
    for address in (*genesis.accounts, *genesis.actors, *genesis.runners):
        if is_reserved(address):
            raise GenesisError(f"0x{address.hex()} is reserved")
    balances = [*genesis.accounts.items(), *((address, actor.balance) for address, actor in genesis.actors.items())]
    for address, balance in balances:
        if not 0 <= balance < AMOUNT_LIMIT:
            raise GenesisError(f"0x{address.hex()}: balance {balance} is out of range, expected 0 to 2**128 - 1")
    for address, actor in genesis.actors.items():
        if (problem := refusal(actor.code)) is not None:
            raise GenesisError(f"0x{address.hex()}: code: {problem}")
