"""The outline of a scenario: validators, latencies, timeline, estimates, success criteria and warnings, as tables.

Nothing is run. Times of heights are estimates for a run without faults, from the links' latencies and the protocol's
two delays per block (``docs/consensus.md``). The targets ``leader``, ``random`` and ``f`` are not known before the
fault begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any, Final

from cluster.checks.kind import shipped
from cluster.commands.explain.estimate import RunEstimate, estimate_run, seconds
from cluster.commands.explain.warnings import find_warnings
from cluster.common.units import MILLISECONDS_PER_SECOND
from cluster.common.wording import first_few
from cluster.faults.kind import MAX_NAMED, known_plans
from cluster.record.run import Backend
from cluster.scenario import Scenario
from cluster.scenario.network import Network
from cluster.scenario.schema import plain_text
from cluster.scenario.sections.chain import FAUCET_OWNER, SEED_PREFIX, owner_address
from cluster.scenario.sections.validators import NodeSection
from consensus.types import fault_bound, quorum
from loadgen.workloads import UserGroup
from loadgen.workloads.phases import AnyPhase
from validator.primitives.types import address_text

MAX_MEMBERS: Final = 10
"""Maximum number of validators with a row each if there are no regions. With more, the table has a single row."""
MAX_PER_GROUP: Final = 8
"""Maximum number of validators per group whose latencies are determined. This bounds the time for large networks."""
NO_REGION: Final = "(no region)"


@dataclass(frozen=True, slots=True)
class Table:
    """A table with a title."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def distances(network: Network) -> Table:
    """The latencies between groups of validators, a row per sender, in milliseconds.

    A cell is ``cut`` if there is no path, and empty if there is no other validator.
    """
    groups = _groups(network)
    rows = tuple((name, *(_cell(network, one, other) for other in groups.values())) for name, one in groups.items())
    return Table("Latencies", ("from \\ to", *groups), rows, _note(network))


def _groups(network: Network) -> dict[str, list[int]]:
    indexes = range(len(network.names))
    if not any(network.regions):
        if len(network.names) <= MAX_MEMBERS:
            return {network.names[index]: [index] for index in indexes}
        return {"all": list(indexes)}
    groups: dict[str, list[int]] = {}
    for index in indexes:
        groups.setdefault(network.regions[index] or NO_REGION, []).append(index)
    return groups


def _cell(network: Network, senders: Sequence[int], receivers: Sequence[int]) -> str:
    pairs = [(a, b) for a in senders[:MAX_PER_GROUP] for b in receivers[:MAX_PER_GROUP] if a != b]
    found = [network.quality(*pair) for pair in pairs]
    latencies = sorted(quality.latency_ms for quality in found if quality is not None)
    if not latencies:
        return "cut" if found else ""
    least, most = (f"{latency:.4g}" for latency in (latencies[0], latencies[-1]))
    text = least if least == most else f"{least}–{most}"
    return text if len(latencies) == len(found) else f"{text}, some cut"


def _note(network: Network) -> str:
    measured = range(min(len(network.names), MAX_PER_GROUP * MAX_PER_GROUP))
    routes = [route for a in measured for b in measured if a != b and (route := network.route(a, b)) is not None]
    if network.graph is None or not routes:
        return "milliseconds of one message; every pair has its own link"
    hops = [len(route) - 1 for route in routes]
    return (
        f"milliseconds of one message; {len(network.links):,} links; the median path leads over {median(hops):g},"
        f" the longest over {max(hops)}"
    )


EXECUTION_MS: Final = 5
"""Time per block in addition to messages: two executor jobs, two syncs, and some overhead."""
MAX_MEASURED: Final = 64
"""Maximum number of committee members in the estimate of the time per block."""
WARNINGS_NOTE: Final = "by the estimates above, for a run that ends by itself; the scenario can be run nevertheless"


def outline(scenario: Scenario, backend: Backend | None = None) -> list[Table]:
    """The tables that describe a scenario. ``backend`` is the intended one, ``None`` if that is open. Pure."""
    each_ms = block_ms(scenario)
    estimate = estimate_run(scenario, each_ms)
    tables = (
        _backends(scenario),
        _validators(scenario),
        _committees(scenario),
        _policy(scenario),
        _accounts(scenario),
        _load(scenario),
        _timeline(scenario, each_ms),
        _estimates(scenario, each_ms, estimate),
        _reached(scenario),
        Table("Warnings", ("field", "warning"), tuple(find_warnings(scenario, estimate, backend)), WARNINGS_NOTE),
        _checks(scenario),
    )
    return [table for table in tables if table.rows]


def _names(names: Sequence[str]) -> str:
    return first_few(names, MAX_NAMED)


# --- validators and accounts ----------------------------------------------------------------------------------------


def _backends(scenario: Scenario) -> Table:
    problems = {"simulator": scenario.simulator_problem, "live testnet": scenario.live_problem}
    rows = tuple((backend, "yes" if problem is None else f"no: {problem}") for backend, problem in problems.items())
    return Table("Backends", ("backend", "supported"), rows)


def _validators(scenario: Scenario) -> Table:
    section = scenario.validators
    region_of = {name: region for region, names in scenario.regions.items() for name in names}
    rows = []
    for index, name in enumerate(section.names):
        special = "; ".join(own_settings(section.node(index)))
        if section.count <= MAX_NAMED or special:
            rows.append((str(index), name, str(section.host_of(index)), region_of.get(name, ""), special))
    note = f"{section.count} validators on {section.host_count} hosts"
    if section.ray_nodes is not None:
        note += f" on {section.ray_nodes} Ray nodes"
    if section.count > MAX_NAMED:
        note += "; only those with their own settings are listed"
    return Table("Validators", ("#", "name", "host", "region", "settings"), tuple(rows), note)


def own_settings(node: NodeSection) -> Iterator[str]:
    """The special settings of one validator, as text."""
    if node.mutant is not None:
        yield f"planted bug {node.mutant}"
    if node.executor is not None:
        yield f"executor {node.executor}"
    if node.external is not None:
        yield f"external, at {node.external.address}"
    if node.byzantine:
        yield f"byzantine: {', '.join(node.byzantine)}"
    if node.joins_at_height is not None:
        yield f"joins at height {node.joins_at_height}"
    if node.sync_ms is not None:
        yield f"each sync takes {node.sync_ms:,} ms"
    if node.job_ms is not None:
        yield f"each job takes {node.job_ms:,} ms"
    if node.clock_speed is not None:
        yield f"clock at {node.clock_speed:g} of its speed"


def _committees(scenario: Scenario) -> Table:
    names = scenario.validators.names
    rows = []
    for view, members in scenario.validators.committees.items():
        count = len(members)
        who = "all" if count == len(names) else _names([names[index] for index in members])
        rows.append((f"from view {view:,}", who, str(count), str(fault_bound(count)), str(quorum(count))))
    return Table("Committees", ("when", "members", "size", "f", "quorum"), tuple(rows))


def _policy(scenario: Scenario) -> Table:
    """The table of a custom policy's parameters."""
    _, own = scenario.chain.policies()
    rows = []
    if own is not None:
        from validator.policies.own import stated_parameters  # loads the timer phases

        stated = stated_parameters(own)
        for name, value in own.parameters:
            default, least, most = stated[name]
            rows.append((name, f"{value:,}", f"{default:,}", f"{least:,} to {most:,}"))
    title = f"Parameters of the policy {scenario.chain.policy_name}"
    return Table(title, ("name", "value", "default", "range"), tuple(rows))


def _accounts(scenario: Scenario) -> Table:
    """The table of accounts and actors, without the load's users. The addresses are those for the scenario's seed."""
    chain, seed = scenario.chain, scenario.seed
    deployers = chain.genesis_deployers(seed)
    balances = chain.genesis_accounts(seed)
    rows = []
    for owner in dict.fromkeys([*chain.accounts, *([FAUCET_OWNER] if chain.faucet else []), *chain.system_deployers]):
        address = owner_address(owner, seed)
        what = "faucet" if owner == FAUCET_OWNER and chain.faucet else "account"
        governs = ", may give system instructions" if address in deployers else ""
        rows.append((owner, address_text(address), f"{balances.get(address, 0):,}", what + governs))
    for name, address in chain.actor_addresses().items():
        actor = chain.actors[name]
        agent = "" if actor.gba is None else f", bidding agent {actor.gba.code}"
        rows.append((name, address_text(address), f"{actor.balance:,}", f"actor, {actor.program.name}{agent}"))
    note = f"without the load's users; addresses of {SEED_PREFIX}NAME are for seed {seed}" if rows else ""
    return Table("Accounts and actors of the genesis", ("name", "address", "balance", "kind"), tuple(rows), note)


# --- the load -------------------------------------------------------------------------------------------------------


def _load(scenario: Scenario) -> Table:
    rows = []
    first = 0
    for group in scenario.load.users:
        last = first + group.count - 1
        numbers = str(first) if first == last else f"{first}–{last}"
        rows.append((numbers, group.facts.name, _interval(group), _when_of(group), _options(group)))
        first = last + 1
    if scenario.load.locust is not None:
        rows.append(("", "Locust", "", "all", ", ".join(own.file for own in scenario.load.locust.files)))
    turns_per_second = sum(group.count * MILLISECONDS_PER_SECOND / group.interval_ms for group in scenario.load.users)
    note = f"{turns_per_second:,.3g} turns per second at rate 1" if rows else ""
    return Table("Load", ("users", "workload", "turn every", "heights", "options"), tuple(rows), note)


def _when_of(part: UserGroup | AnyPhase) -> str:
    first = part.from_height or 0
    if part.until_height is None:
        return "all" if not first else f"from {first:,} on"
    return f"{first:,} to {part.until_height:,}"


def _interval(group: UserGroup) -> str:
    return f"{group.interval_ms:,} ms" + (", open loop" if group.arrival == "open" else "")


def _options(group: UserGroup) -> str:
    stated = [f"{name} {_short(value)}" for name, value in group.options.items()]
    return ", ".join([*([] if group.budget is None else [f"budget {group.budget:,}"]), *stated])


def _short(value: Any) -> str:
    if isinstance(value, dict) and "name" in value:
        return str(value["name"])
    return f"({len(value)})" if isinstance(value, list) else str(value)


# --- the timeline ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Moment:
    at_ms: float
    """Estimated time, which determines the order."""
    when: str
    what: str
    how_long: str = ""


def _timeline(scenario: Scenario, each_ms: float) -> Table:
    moments = [
        *_load_moments(scenario, each_ms),
        *_epoch_moments(scenario, each_ms),
        *_join_moments(scenario, each_ms),
        *_fault_moments(scenario, each_ms),
        *_fork_moments(scenario, each_ms),
        *_stop_moments(scenario, each_ms),
    ]
    rows = tuple((each.when, each.what, each.how_long) for each in sorted(moments, key=lambda each: each.at_ms))
    note = "times of heights are estimates for a run without faults"
    return Table("Timeline", ("when", "event", "duration"), rows, note)


def _at_height(height: int, each_ms: float, what: str, how_long: str = "") -> _Moment:
    at_ms = height * each_ms
    return _Moment(at_ms, f"height {height:,} (about {seconds(at_ms)})", what, how_long)


def _load_moments(scenario: Scenario, each_ms: float) -> Iterator[_Moment]:
    for number, group in enumerate(scenario.load.users):
        who = f"users of group {number} ({group.count} × {group.facts.name})"
        lasts = "" if group.until_height is None else f"until height {group.until_height:,}"
        if group.from_height is None:
            yield _Moment(0, "at the start", f"{who} begin", lasts)
        else:
            yield _at_height(group.from_height, each_ms, f"{who} begin", lasts)
        yield from _phase_moments(f"group {number}", group.phases or [], each_ms)
    yield from _phase_moments("load", scenario.load.phases, each_ms)


def _phase_moments(who: str, phases: Sequence[AnyPhase], each_ms: float) -> Iterator[_Moment]:
    for phase in phases:
        what, lasts = f"{who}: {_phase(phase)}", "to the end"
        if phase.is_by_time:
            lasts = lasts if phase.end is None else f"until {seconds(phase.end)}"
            yield _Moment(phase.begin, seconds(phase.begin), what, lasts)
        else:
            lasts = lasts if phase.end is None else f"until height {phase.end:,}"
            yield _at_height(phase.begin, each_ms, what, lasts)


def _phase(phase: AnyPhase) -> str:
    match phase.kind:
        case "steady":
            return f"steady, {phase.rate:g} times as many turns"
        case "ramp":
            return f"ramp, from {phase.from_rate:g} to {phase.to_rate:g} times as many turns"
        case "step":
            return f"{phase.steps:,} steps, from {phase.from_rate:g} to {phase.to_rate:g} times as many turns"
        case "spike":
            return f"spike, {phase.rate:g} times as many turns in the middle (at its ends {phase.base_rate:g})"
        case "sine":
            period = f"{phase.period:,} blocks" if phase.period_ms is None else f"{phase.period_ms:,} ms"
            return f"sine of {period}, {phase.rate:g} ± {phase.amplitude:g} times as many turns"
        case "burst":
            length, every = phase.lengths
            often = f"{length:,} of every {every:,} {'ms' if phase.is_by_time else 'blocks'}"
            return f"bursts of {often}, {phase.rate:g} times as many turns (between them {phase.base_rate:g})"
        case "trace":
            return f"trace of {len(phase.points):,} points"
        case "feedback":
            value = phase.watches.replace("_", " of the ")
            return (
                f"feedback, {phase.low_rate:g} times as many turns up to a {value} of {phase.low:,},"
                f" {phase.high_rate:g} from {phase.high:,} on"
            )
        case "pause":
            return "pause, no turns"


def _epoch_moments(scenario: Scenario, each_ms: float) -> Iterator[_Moment]:
    for epoch in scenario.validators.epochs:
        at_ms = epoch.from_view * each_ms
        when = f"view {epoch.from_view:,} (about {seconds(at_ms)})"
        yield _Moment(at_ms, when, f"the committee becomes {_names(epoch.members)}", "")


def _join_moments(scenario: Scenario, each_ms: float) -> Iterator[_Moment]:
    for index, height in scenario.validators.late.items():
        yield _at_height(height, each_ms, f"{scenario.validators.names[index]} joins by a snapshot")


def _fault_moments(scenario: Scenario, each_ms: float) -> Iterator[_Moment]:
    for given, fault in zip(scenario.faults, known_plans(scenario), strict=True):
        aim = fault.aim(scenario.validators, given)
        what = f"fault: {fault.kind_name.replace('_', ' ')}, {aim}{fault.details}"
        if fault.at_ms is not None:
            yield _Moment(fault.at_ms, seconds(fault.at_ms), what, fault.length)
        elif fault.at_height is not None:
            after = f", after {fault.after_votes} votes" if fault.after_votes else ""
            yield _at_height(fault.at_height, each_ms, what + after, fault.length)


def _fork_moments(scenario: Scenario, each_ms: float) -> Iterator[_Moment]:
    for fork in scenario.forks:
        changes = ", ".join(f"{path} becomes {value}" for path, value in fork.changes.items())
        seed = f"random choices follow seed {fork.seed}" if fork.seed is not None else ""
        yield _at_height(fork.at_height, each_ms, f"fork: {'; '.join(filter(None, (changes, seed))) or 'no change'}")


def _stop_moments(scenario: Scenario, each_ms: float) -> Iterator[_Moment]:
    stop = scenario.stop
    drain = f"then {stop.drain_blocks:,} blocks to drain"
    if stop.duration_s is None:
        yield _at_height(stop.height, each_ms, "the load stops", drain)
    else:
        stop_ms = stop.duration_s * MILLISECONDS_PER_SECOND
        yield _Moment(stop_ms, seconds(stop_ms), "the load stops (stop.duration_s)", drain)
    limit_ms = stop.longest_s * MILLISECONDS_PER_SECOND
    yield _Moment(limit_ms, seconds(limit_ms), "the run is ended (stop.timeout_s)")


# --- estimates and criteria -----------------------------------------------------------------------------------------


def block_ms(scenario: Scenario) -> float:
    """Estimated time per block without faults: the block interval, the execution, and two message delays by the links'
    latencies."""
    committee = next(iter(scenario.validators.committees.values()))
    network = scenario.network
    measured = committee[:MAX_MEASURED]

    def delay_ms(sender: int, receiver: int) -> float:
        if sender == receiver:
            return 0.0
        quality = network.quality(sender, receiver)
        return float("inf") if quality is None else quality.latency_ms

    def notarized_ms(leader: int, following: int) -> float:
        """Time from a proposal until the next leader has a quorum of votes for it."""
        arrivals = sorted(delay_ms(leader, voter) + delay_ms(voter, following) for voter in measured)
        return arrivals[quorum(len(measured)) - 1]

    pairs = [(leader, measured[(place + 1) % len(measured)]) for place, leader in enumerate(measured)]
    reached = [found for pair in pairs if (found := notarized_ms(*pair)) < float("inf")]
    return scenario.consensus.block_interval_ms + EXECUTION_MS + (mean(reached) if reached else 0.0)


def _estimates(scenario: Scenario, each_ms: float, estimate: RunEstimate) -> Table:
    count, success, consensus = scenario.validators.count, scenario.success, scenario.consensus
    leaders = "drawn" if consensus.leader_election == "random" else "in turn"
    rows = (
        ("protocol", f"{consensus.protocol}, leaders {leaders}"),
        ("faulty validators tolerated", f"f = {fault_bound(count)} of {count}"),
        ("quorum", f"{quorum(count)} of {count}"),
        ("time of a block without faults", f"about {each_ms:,.0f} ms, plus the machines' time on the live testnet"),
        ("time of a failed view", f"at most {consensus.view_change_ms:,} ms"),
        ("recovery after the last fault", f"within {scenario.recovery_ms:,} ms"),
        ("time without a final block", f"at most {success.stall_ms:,} ms"),
        ("length of the run", _length(scenario, estimate)),
    )
    return Table("Estimates", ("estimate", "value"), rows)


def _length(scenario: Scenario, estimate: RunEstimate) -> str:
    limit_ms = scenario.stop.longest_s * MILLISECONDS_PER_SECOND
    return (
        f"about {seconds(estimate.length_ms)}"
        if estimate.length_ms <= limit_ms
        else f"{seconds(limit_ms)}, then ended (stop.timeout_s)"
    )


def _last_height(scenario: Scenario) -> str:
    stop = scenario.stop
    return f"at least {stop.height:,}" if stop.duration_s is None else "at least that at which the load stops"


def _reached(scenario: Scenario) -> Table:
    success = scenario.success
    rows = [
        ("final height of every validator", _last_height(scenario), "fail"),
        ("heights compared", f"at least {success.heights_compared:,}", "inconclusive"),
        ("committed transactions", f"at least {success.transactions:,}", "inconclusive"),
        ("fires", f"at least {success.fires:,}", "inconclusive"),
        ("longest stall", f"at most {success.stall_ms:,} ms", "fail"),
        ("recovery", f"at most {scenario.recovery_ms:,} ms", "fail"),
    ]
    rows += [(name, criterion.text, "fail") for name, criterion in success.metrics.items()]
    for name, sampled in success.samples.items():
        share = f"; up to {100 * sampled.breach_share:g} % may be outside" if sampled.breach_share else ""
        rows.append((name, f"{sampled.text}{share}", "fail"))
    return Table("Success criteria", ("criterion", "required", "otherwise"), tuple(rows))


def _checks(scenario: Scenario) -> Table:
    """The checks of a run. Of those that the scenario names, the texts are not executed."""
    rows = [(kind.name, plain_text(kind.__doc__ or "").split("\n\n")[0]) for kind in shipped()]
    rows += [
        (check, "of an installed package") if isinstance(check, str) else (check.name, f"as {check.file} has it")
        for check in scenario.success.checks
    ]
    return Table("Checks", ("check", "rule"), tuple(rows))
