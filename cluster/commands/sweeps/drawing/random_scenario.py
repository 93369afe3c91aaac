"""Random scenarios for ``stampede fuzz``. A scenario follows from its seed and the protocol alone.

As in swarm testing, each scenario omits some kinds of faults and some features of the network, so that rare
combinations occur. The scenarios keep to rules, so that a failing run is a finding:

- Timeouts are long enough for the links, or can become so: without faults the network makes progress.
- Faults end, and the run lasts long enough after the last one (a kill that waits for votes may come later).
- Every committee tolerates the number of validators that lose their disks, are late or byzantine.

A seed must give the same draws as in older versions. So each addition to this module has a separate random source
(:meth:`_Drawing.part`).
"""

from __future__ import annotations

from random import Random
from typing import Final

from blake3 import blake3

from cluster.commands.sweeps.drawing.attackers import attack
from cluster.commands.sweeps.drawing.corners import corner
from cluster.commands.sweeps.drawing.extremes import (
    PROGRAMS,
    SMALLEST,
    Fields,
    aim,
    call_at_limits,
    crowd,
    govern,
    hurry,
    keep_little,
    losing_in,
    nodes_of,
    run_programs,
    storm,
    watch_keys,
)
from cluster.commands.sweeps.drawing.small_worlds import shrink
from cluster.common.errors import BadInput
from cluster.faults.kind import FaultKind
from cluster.misbehaviour.byzantine.registry import BEHAVIOURS
from cluster.scenario import Scenario
from cluster.scenario.sections.faults import kind_named
from consensus.types import fault_bound
from loadgen.workloads.actor_program import FOLDER, NAMES

STOP_HEIGHT: Final = 38
DRAIN_BLOCKS: Final = 4
TIMEOUT_S: Final = 1_200
ED25519_EVERY: Final = 8
"""Every seed that is a multiple of this number has real signatures; the others have a fast substitute. Some of
:data:`~cluster.commands.sweeps.drawing.corners.CORNERS` turn on real signatures, too."""
FIRST_FAULT_HEIGHT: Final = 4
LAST_FAULT_HEIGHT: Final = 30
SNAPSHOT_HEIGHT: Final = 12
"""A height from which on validators have snapshots, with which another validator can join."""
MAX_FAULTS: Final = 5
FIRST_KINDS: Final = (
    "kill",
    "wipe",
    "disk_full",
    "failed_sync",
    "bit_rot",
    "pause",
    "slow_disk",
    "slow_execution",
    "clock_skew",
    "partition",
    "one_way_partition",
    "degrade",
    "leader_delay",
)
"""Kinds of faults that are drawn from the main random source. Others have separate parts (:meth:`_Drawing.rarely`)."""
RIVAL_POLICIES: Final = 0.2
"""Share of the chains with an auction that run another one than ``cip1``."""
CANDIDATES: Final = 0.25
"""Share of the chains with ``cip1`` that have its candidates: other weight parties, smoothed medians, clip bounds."""
EPOCHS: Final = 0.4
"""Share of the seeds with changing committees, among those with more validators than :data:`SMALLEST`."""
UPGRADES: Final = 0.2
"""Share of the seeds with an upgrade."""
STRAINED: Final = 0.1
"""Share of the seeds with additions of :data:`STRAINS`."""
MAX_STRAINS: Final = 4
"""Maximum number of :data:`STRAINS` in a scenario."""
CUTS: Final = 0.16
"""Share of the seeds with cut links."""
LOST_NODES: Final = 0.12
"""Share of the seeds with a lost Ray node."""
GOVERNED: Final = 0.12
"""Share of the seeds with system instructions and deployments."""
LIES: Final = (
    "short-certificate",
    "double-signer",
    "outsider",
    "kind-replayer",
    "sister-chain",
    "timeout-forger",
    "false-high-certificate",
    "understated-timeouts",
    "lock-breaker",
)
"""Byzantine behaviours that :meth:`_Drawing.lie` draws, from a separate random source."""
FORGED_BLOCKS: Final = ("invalid-block-any-field", "false-proposer")
FORGED_RANGES: Final = ("unproved-blocks",)
FORGED_SNAPSHOTS: Final = ("unproved-snapshot", "false-manifest")
"""Byzantine behaviours that send false snapshots to a validator that joins. They are drawn if the committee can spare
two validators."""
UNPROVED_VIEW: Final = "unproved-view"
"""Byzantine behaviour: a lie about the validator's view. Half of the validators with one of :data:`FORGED_SNAPSHOTS`
have it, too."""
FORGERIES: Final = (*FORGED_BLOCKS, *FORGED_RANGES, *FORGED_SNAPSHOTS, UNPROVED_VIEW)
OLD_NULLIFICATIONS: Final = "old-nullifications"
"""Byzantine behaviour: sends old nullifications. It comes with a partition, in which a validator hears only the
byzantine one (:func:`_recall_failures`)."""
SLANDERERS: Final = 0.06
"""Share of the seeds with :data:`OLD_NULLIFICATIONS`, if a validator can be spared or is byzantine anyway."""
FORGERS: Final = 0.15
"""Share of the seeds with one of :data:`FORGERIES`, if a validator can be spared or is byzantine anyway."""
GREEDY: Final = "greedy-asker"
GREED: Final = 0.4
"""Share of the seeds in which a validator has the behaviour :data:`GREEDY`, among those with byzantine validators."""
LIARS: Final = 0.25
"""Share of the seeds with one of :data:`LIES`, if a validator can be spared or is byzantine anyway."""
OUTSIDERS: Final = 0.7
"""Share of the seeds in which the lie is ``outsider``, among those with a lie and a committee that omits a possible
liar."""
KEPT_BLOCKS: Final = (None, 16, 24)
"""Possible numbers of blocks that a small disk keeps (``None``: all); one is drawn."""
STRAINS: Final = (keep_little, crowd, hurry, storm, run_programs, aim)
SLOW_NETWORKS: Final = 0.08
"""Share of the seeds in which a message takes about as long as the initial timeouts, or longer."""
SLOW_TIMEOUT_S: Final = 4 * TIMEOUT_S
MAX_RECOVERY_MS: Final = 3_600_000
QUICK_REPEATS: Final = 0.5
"""Share of the seeds in which messages are repeated after about two block times."""
HASTY: Final = 0.12
"""Share of the seeds without a block interval, among those whose links are so slow that a block takes at least
:data:`LEAST_BLOCK_MS` anyway."""
LEAST_BLOCK_MS: Final = 40
UPLINKS: Final = 0.08
"""Share of the seeds in which validators have slow uplinks."""
UPLINKS_KBPS: Final = (500, 1_000, 2_000)
SURELY_REACHED: Final = 30
"""A view that every run reaches."""


def check_installed() -> None:
    """Raise :class:`BadInput` if a program of :data:`PROGRAMS` is missing."""
    if missing := sorted(set(PROGRAMS) - set(NAMES)):
        raise BadInput(f"programs of actors are missing: {', '.join(missing)}; expected them in {FOLDER}")


def random_scenario(seed: int, protocol: str) -> Scenario:
    """The random scenario of a seed and a consensus protocol."""
    return Scenario.model_validate(_Drawing(seed, protocol).scenario())


def _main_source(seed: int, protocol: str) -> Random:
    """The main random source of a seed."""
    drawn = blake3(f"{seed} {protocol}".encode(), derive_key_context="stampede fuzz 2").digest()
    return Random(int.from_bytes(drawn, "big"))


def _slices(random: Random) -> Fields:
    """Parameters of ``gba_auction``."""
    return {
        "STARVATION_BLOCKS": random.choice([2, 8, 64]),
        "BUDGET_SLICES": random.choice([1, 4, 20]),
        "WEIGHT_LAMBDA_MILLI": random.choice([200, 800]),
    }


def _candidates(random: Random) -> Fields:
    """Parameters of ``cip1`` that its design names as candidates."""
    least, most = random.choice([(1_000, 2_000), (1_000, 1_000), (0, 2_000), (500, 1_500)])
    return {
        "WEIGHT_PARTY": random.choice(["actor", "deployer"]),
        "MEDIAN_SMOOTHING_MILLI": random.choice([10, 200, 1_000]),
        "WEIGHT_CLIP_MIN_MILLI": least,
        "WEIGHT_CLIP_MAX_MILLI": most,
    }


def _biases(random: Random) -> Fields:
    """Parameters of ``bias_auction``; a few blocks of waiting outbid small bids under some."""
    return {
        "PAYMENT_RULE": random.choice(["vcg", "critical", "first_price"]),
        "BIAS_LAMBDA_MICRO": random.choice([100_000, 1_000_000]),
        "BIAS_INTERVAL_BLOCKS": random.choice([2, 16]),
        "RESERVE_PRICE": random.choice([0, 10**6]),
        "MAX_FIRES_PER_ACTOR": random.choice([2, 20, 10**9]),
    }


def drawn_kind(name: str) -> type[FaultKind]:
    """A kind of fault."""
    kind = kind_named(name)
    assert issubclass(kind, FaultKind)
    return kind


class _Drawing:
    """Draws the fields of one random scenario."""

    def __init__(self, seed: int, protocol: str) -> None:
        self.seed = seed
        self.random = _main_source(seed, protocol)
        self.protocol = protocol
        self.count = self.random.choice([4, 4, 4, 5, 6, 7])
        self.names = [f"validator-{index}" for index in range(self.count)]
        self.latency_ms = self.random.choice([1.0, 5.0, 20.0, 60.0])
        self.interval_ms = self.random.choice([40, 100, 200, 400])
        most_ms = round(6 * (2 * self.latency_ms) + self.interval_ms) + 200
        self.leader_timeout_ms = self.random.randint(most_ms, 2 * most_ms)
        self.advance_timeout_ms = round(self.leader_timeout_ms * self.random.uniform(1.1, 2.0))
        self.view_change_ms = self.advance_timeout_ms + self.interval_ms
        self.late = self.random.random() < 0.15
        is_byzantine = not self.late and self.random.random() < 0.25
        self.byzantine = self.random.randint(1, fault_bound(self.count)) if is_byzantine else 0
        self.targets = self.names[:-1] if self.late else self.names
        """Validators that faults may name: all but the late one."""
        self.not_counted_on = int(self.late) + self.byzantine
        """Number of validators that are byzantine, lose their disk or are late."""
        self.smallest_committee = self.count

    def part(self, name: str) -> Random:
        """The random source of an addition. Each has its name."""
        return Random(f"{self.seed}/{self.protocol}/{name.replace('-', ' ')}")

    def maybe(self, chance: float = 0.5) -> bool:
        return self.random.random() < chance

    def scenario(self) -> Fields:
        """The fields of the whole scenario."""
        fields: Fields = {
            "name": f"fuzz-{self.protocol}",
            "description": f"Drawn from seed {self.seed}.",
            "seed": self.seed,
            "chain": self.chain(),
            "validators": self.validators(),
            "consensus": self.consensus(),
            "links": self.links(),
            "load": self.load(),
            "faults": [*self.faults(), *self.rarely("upgrade", "upgrade", UPGRADES), *self.rarely("cut", "cuts", CUTS)],
            "stop": {"height": STOP_HEIGHT, "drain_blocks": DRAIN_BLOCKS, "timeout_s": TIMEOUT_S},
            "success": {"heights_compared": 30, "transactions": 5, "fires": 20, "stall_ms": TIMEOUT_S * 1_000},
        }
        random = self.part("strain")
        if random.random() < STRAINED:
            self.strain(random, fields)
        random = self.part("lies")
        if random.random() < LIARS:
            self.lie(random, fields["validators"], fields["consensus"])
        random = self.part("forgeries")
        if random.random() < FORGERS:
            self.forge(random, fields)
        random = self.part("governance")
        if random.random() < GOVERNED:
            govern(random, fields)
        random = self.part("pace")
        if random.random() < SLOW_NETWORKS:
            self.slow_down(random, fields)
        if random.random() < QUICK_REPEATS:
            self.repeat_quickly(random, fields)
        if "storage" in fields:
            fields["storage"]["keep_blocks"] = self.part("blocks").choice(KEPT_BLOCKS)
        random = self.part("nodes")
        if random.random() < LOST_NODES:
            self.lose_node(random, fields)
        random = self.part("greed")
        liars = [node for node in fields["validators"].get("nodes", ()) if node.get("byzantine")]
        if liars and random.random() < GREED:
            random.choice(liars)["byzantine"].append(GREEDY)
        random = self.part("uplinks")
        if random.random() < UPLINKS:
            self.slow_uplinks(random, fields)
        random = self.part("old-nullifications")
        if random.random() < SLANDERERS:
            _recall_failures(self, random, fields)
        attack(self.part("attack"), fields)
        shrink(self.part("small-world"), fields)
        corner(self.part("corner"), fields)
        call_at_limits(self.part("limits"), fields)
        watch_keys(self.part("watches"), fields)
        _build_at_once(self, self.part("hasty"), fields)
        return fields

    # --- chain, validators, load --------------------------------------------------------------------------------------

    def chain(self) -> Fields:
        params: Fields = {}
        if self.maybe():
            params |= {"RING_BUFFER_SIZE": 8, "EPOCH_LENGTH": 8, "EPOCH_HORIZON": self.random.choice([1, 2, 5])}
        if self.maybe():
            lane = self.random.choice([400_000, 1_000_000])
            params |= {"LANE_TIMER_CYCLES": lane, "MAX_CYCLES_PER_FIRE": 300_000}
        if self.maybe():
            params |= {"MAX_TTL": self.random.choice([15, 40]), "FAIRNESS_WINDOW_BLOCKS": self.random.choice([1, 10])}
        if self.maybe(0.25):
            params |= {"ACTIVATION_HEIGHT": self.random.randint(1, 20)}
        policy = "fifo" if self.maybe(0.15) else "cip1"
        random = self.part("policy")
        if policy == "cip1" and random.random() < RIVAL_POLICIES:
            policy, drawn = random.choice((("gba_auction", _slices), ("bias_auction", _biases)))
            params |= drawn(random)
        random = self.part("candidates")
        if policy == "cip1" and random.random() < CANDIDATES:
            params |= _candidates(random)
        return {"policy": policy, "preset": "hardened" if self.maybe(0.3) else None, "params": params}

    def validators(self) -> Fields:
        fields: Fields = {"count": self.count}
        nodes: list[Fields] = [{} for _ in range(self.count)]
        if self.late:
            nodes[-1] = {"joins_at_height": self.random.randint(SNAPSHOT_HEIGHT, 16)}
            fields["nodes"] = nodes
        elif self.byzantine:
            others = sorted(set(BEHAVIOURS) - {*LIES, *FORGERIES, GREEDY, OLD_NULLIFICATIONS})
            for index in self.random.sample(range(self.count), self.byzantine):
                nodes[index] = {"byzantine": self.random.sample(others, self.random.choice([1, 1, 2]))}
            fields["nodes"] = nodes
            random = self.part("epochs")
            if self.count > SMALLEST and self.byzantine <= fault_bound(SMALLEST) and random.random() < EPOCHS:
                fields["epochs"] = self.epochs(random)
        elif self.count > SMALLEST and self.maybe(EPOCHS):
            fields["epochs"] = self.epochs(self.random)
        sizes = (len(epoch["members"]) for epoch in fields.get("epochs", ()))
        self.smallest_committee = min(sizes, default=self.count)
        return fields

    def epochs(self, random: Random) -> list[Fields]:
        views = sorted(random.sample(range(5, 45), 2))
        return [
            {"from_view": view, "members": random.sample(self.names, random.randint(SMALLEST, self.count))}
            for view in views
        ]

    def consensus(self) -> Fields:
        return {
            "protocol": self.protocol,
            "leader_election": self.random.choice(["round-robin", "random"]),
            "signatures": "keyed-hash" if self.seed % ED25519_EVERY else "ed25519",
            "block_interval_ms": self.interval_ms,
            "leader_timeout_ms": self.leader_timeout_ms,
            "advance_timeout_ms": self.advance_timeout_ms,
            "rebroadcast_ms": self.random.randint(self.advance_timeout_ms // 2, 2 * self.advance_timeout_ms),
        }

    def links(self) -> Fields:
        fields: Fields = {"latency_ms": self.latency_ms, "jitter_ms": self.latency_ms * self.random.choice([0, 0.5, 1])}
        for name, most in (("loss", 0.03), ("duplication", 0.2), ("reordering", 0.2)):
            if self.maybe():
                fields[name] = self.random.uniform(0.001, most)
        if self.maybe(0.2):
            fields["bandwidth_kbps"] = self.random.choice([20_000, 100_000])
        return fields

    def load(self) -> Fields:
        """The section ``load``: usually a light load, so that many seeds can be run."""
        is_heavy = self.maybe(0.25)
        most, count, pause_ms = (12, 2, 400) if is_heavy else (5, 1, 800)
        flood = {"timers": self.random.randint(3, most), "spread_blocks": self.random.randint(2, 12), "burn": 8_000}
        users: list[Fields] = [{"workload": "flood", "count": count, "interval_ms": pause_ms, "options": flood}]
        others = [workload for workload in ("heartbeat", "churn", "transfer") if self.maybe()]
        interval_ms = pause_ms + self.random.choice([-100, 300])
        users += [{"workload": workload, "count": count, "interval_ms": interval_ms} for workload in others]
        return {"users": users}

    def slow_down(self, random: Random, fields: Fields) -> None:
        """Make links about as slow as the initial timeouts or slower, and slow users down by the same factor as blocks.

        No setting determines how soon such a network recovers. So success has practically no bounds on stalls and
        recovery.
        """
        latency_ms = self.advance_timeout_ms * random.uniform(0.5, 1.5)
        slower = 2 * latency_ms / max(2 * self.latency_ms, self.interval_ms)
        for group in fields["load"]["users"]:
            group["interval_ms"] = round(slower * group["interval_ms"])
        fields["links"] |= {"latency_ms": latency_ms, "jitter_ms": latency_ms * random.choice([0, 0.2, 0.5])}
        fields["links"].pop("bandwidth_kbps", None)
        fields["stop"]["timeout_s"] = SLOW_TIMEOUT_S
        fields["success"] |= {"stall_ms": SLOW_TIMEOUT_S * 1_000, "recovery_ms": MAX_RECOVERY_MS}

    def slow_uplinks(self, random: Random, fields: Fields) -> None:
        """Make uplinks so slow that sending a block takes about as long as a timeout.

        As with slow links, success has practically no bounds on stalls and recovery.
        """
        fields["links"]["uplink_kbps"] = random.choice(UPLINKS_KBPS)
        fields["stop"]["timeout_s"] = SLOW_TIMEOUT_S
        fields["success"] |= {"stall_ms": SLOW_TIMEOUT_S * 1_000, "recovery_ms": MAX_RECOVERY_MS}

    def repeat_quickly(self, random: Random, fields: Fields) -> None:
        """Set the rebroadcast interval to about two block times, unless a byzantine behaviour needs another one."""
        if not any("lock-breaker" in node.get("byzantine", ()) for node in fields["validators"].get("nodes", ())):
            block_ms = max(2 * fields["links"]["latency_ms"], self.interval_ms)
            fields["consensus"]["rebroadcast_ms"] = round(block_ms * random.uniform(0.5, 3.0)) + 1

    # --- strains ------------------------------------------------------------------------------------------------------

    def strain(self, random: Random, fields: Fields) -> None:
        """Add some of :data:`STRAINS`."""
        for strain in random.sample(STRAINS, random.randint(1, MAX_STRAINS)):
            strain(random, fields)
        self.lie_to_joiners(random, fields)

    def lie_to_joiners(self, random: Random, fields: Fields) -> None:
        """Let one validator lose its disk and another serve false snapshots, if the committee can spare both."""
        if self.not_counted_on or fault_bound(self.smallest_committee) < 2:
            return
        liar, victim = random.sample(range(self.count), 2)
        nodes: list[Fields] = [{} for _ in range(self.count)]
        nodes[liar]["byzantine"] = ["false-snapshots"]
        fields["validators"]["nodes"] = nodes
        height = random.randrange(SNAPSHOT_HEIGHT, LAST_FAULT_HEIGHT)
        target = self.names[victim]
        fields["faults"].append({"kind": "wipe", "target": target, "at_height": height, "down_ms": self.view_change_ms})

    # --- byzantine validators -----------------------------------------------------------------------------------------

    def lie(self, random: Random, validators: Fields, consensus: Fields) -> None:
        """Give one of :data:`LIES` to a byzantine validator. If there is none, make one validator byzantine.

        Do nothing if the committee cannot spare that validator.
        """
        nodes = nodes_of(validators)
        liars = [index for index, node in enumerate(nodes) if node.get("byzantine")]
        if not liars:
            if self.not_counted_on >= fault_bound(self.smallest_committee):
                return
            liars = list(range(len(self.targets)))
        epochs = validators.get("epochs", [])
        soon = [set(epoch["members"]) for epoch in epochs if epoch["from_view"] <= SURELY_REACHED]
        outside = [index for index in liars if any(self.names[index] not in members for members in soon)]
        if outside and random.random() < OUTSIDERS:
            liar, lie = random.choice(outside), "outsider"
        else:
            liar, lie = random.choice(liars), random.choice(self.lies_of_members(bool(epochs), consensus))
        nodes[liar].setdefault("byzantine", []).append(lie)
        validators["nodes"] = nodes

    def lies_of_members(self, changing: bool, consensus: Fields) -> list[str]:
        """The :data:`LIES` that a committee member can tell in this scenario.

        A lie that belongs to one protocol needs its validator to lead, and so a committee that does not change.
        """
        spoken = [name for name in LIES if BEHAVIOURS[name].protocol in ("", self.protocol) and name != "outsider"]
        if consensus["leader_election"] != "random" or consensus["rebroadcast_ms"] <= self.advance_timeout_ms:
            spoken = [name for name in spoken if name != "lock-breaker"]  # it needs to lead twice in a row
        return [name for name in spoken if not (changing and BEHAVIOURS[name].protocol)]

    def forge(self, random: Random, fields: Fields) -> None:
        """Give one of :data:`FORGERIES` to a byzantine validator. If there is none, make a validator byzantine.

        If the validator forges answers, its victim is the validator that asks it first. A fault makes the victim ask:
        it is down for a long time, or loses its disk. Do nothing if the committee cannot spare the validators.
        """
        nodes = nodes_of(fields["validators"])
        liars = [index for index, node in enumerate(nodes) if node.get("byzantine")]
        lost = sum(fault["kind"] in ("wipe", "bit_rot") for fault in fields["faults"])
        spare = fault_bound(self.smallest_committee) - max(len(liars), 1) - lost - int(self.late)
        if spare < 0:
            return
        liar = random.choice(liars or range(len(self.targets)))
        asking = (liar - 1) % len(self.targets)
        is_asked = asking not in liars
        possible = FORGED_SNAPSHOTS if is_asked and spare else FORGED_BLOCKS + FORGED_RANGES * is_asked
        forged = random.choice(possible)
        nodes[liar].setdefault("byzantine", []).append(forged)
        fields["validators"]["nodes"] = nodes
        if forged in FORGED_SNAPSHOTS and self.part("views").random() < 0.5:
            nodes[liar]["byzantine"].append(UNPROVED_VIEW)
        if forged not in FORGED_BLOCKS:
            kind = "kill" if forged in FORGED_RANGES else "wipe"
            height, down_ms = random.randrange(SNAPSHOT_HEIGHT, LAST_FAULT_HEIGHT), 3 * self.view_change_ms
            fault = {"kind": kind, "target": self.names[asking], "at_height": height, "down_ms": down_ms}
            fields["faults"].append(fault)

    # --- faults -------------------------------------------------------------------------------------------------------

    def faults(self) -> list[Fields]:
        kinds = [kind for kind in FIRST_KINDS if self.maybe()]
        while len(kinds) < 2:
            kinds = list(dict.fromkeys([*kinds, self.random.choice(FIRST_KINDS)]))
        number = self.random.randint(2, MAX_FAULTS)
        heights = sorted(self.random.sample(range(FIRST_FAULT_HEIGHT, LAST_FAULT_HEIGHT), number))
        return [self.fault(height, kinds) for height in heights]

    def rarely(self, kind: str, part: str, share: float) -> list[Fields]:
        """At most one fault of a kind that is drawn in a part, in a share of the seeds."""
        self.random = self.part(part)
        if self.random.random() >= share:
            return []
        return [self.drawn(kind, self.random.randrange(FIRST_FAULT_HEIGHT, LAST_FAULT_HEIGHT))]

    def drawn(self, kind: str, height: int) -> Fields:
        """A fault as its kind draws it."""
        return {"kind": kind, "at_height": height, **drawn_kind(kind).draw(self)}

    def lose_node(self, random: Random, fields: Fields) -> None:
        """Add the loss of a validator's Ray node. Its disks may be lost, too, if its validators can be spared."""
        section = fields["validators"]
        section["ray_nodes"] = nodes = random.randint(2, self.count)
        most = -(-self.count // nodes)
        liars = sum(bool(node.get("byzantine")) for node in section.get("nodes", ()))
        losing = sum(fault["kind"] in ("wipe", "bit_rot") for fault in fields["faults"])
        spare = fault_bound(self.smallest_committee) - liars - losing - int(self.late)
        is_lost = most <= spare and random.random() < 0.7
        fault: Fields = {"kind": "lose_node", "disks": "lost" if is_lost else "kept"}
        fault["at_height"] = random.randrange(SNAPSHOT_HEIGHT, LAST_FAULT_HEIGHT)
        fault["target"] = random.choice(["random", "leader", random.choice(self.targets)])
        fault["down_ms"] = round(self.view_change_ms * random.uniform(1.5, 5.0))
        fields["faults"].append(fault)

    def fault(self, height: int, kinds: list[str]) -> Fields:
        kind = self.random.choice(kinds)
        if kind in ("wipe", "bit_rot"):
            if self.not_counted_on >= fault_bound(self.smallest_committee) or height < SNAPSHOT_HEIGHT:
                kind = "kill"
            else:
                self.not_counted_on += 1
        return self.drawn(kind, height)

    def lasting_ms(self) -> int:
        """A random duration longer than a view change, so that a fault takes effect."""
        return round(self.view_change_ms * self.random.uniform(1.5, 5.0))

    def target(self) -> str | list[str]:
        choice = self.random.choice(["random", "leader", "f", "some", "all"])
        if choice == "all":
            return self.targets
        if choice != "some":
            return choice
        return self.some()

    def some(self) -> list[str]:
        return self.random.sample(self.targets, self.random.randint(1, fault_bound(self.count) + 1))


def _build_at_once(drawing: _Drawing, random: Random, fields: Fields) -> None:
    """In some scenarios with slow links, set the block interval to 0, and speed users up by the blocks' factor."""
    if drawing.latency_ms < LEAST_BLOCK_MS / 2 or random.random() >= HASTY:
        return
    fields["consensus"]["block_interval_ms"] = 0
    for group in fields["load"]["users"]:
        group["interval_ms"] = max(1, round(group["interval_ms"] / max(1.0, drawing.interval_ms / LEAST_BLOCK_MS)))


def _recall_failures(drawing: _Drawing, random: Random, fields: Fields) -> None:
    """Cut one validator off from all others except a byzantine one, which sends it old nullifications."""
    nodes = nodes_of(fields["validators"])
    liars = [index for index, node in enumerate(nodes) if node.get("byzantine")]
    if fault_bound(drawing.smallest_committee) < max(len(liars), 1) + losing_in(fields) + int(drawing.late):
        return
    liar = random.choice(liars or range(len(drawing.targets)))
    victim = random.choice([index for index in range(len(drawing.targets)) if index != liar])
    nodes[liar].setdefault("byzantine", []).append(OLD_NULLIFICATIONS)
    fields["validators"]["nodes"] = nodes
    others = [name for name in drawing.targets if name != drawing.names[victim]]
    groups = [others, [drawing.names[victim], drawing.names[liar]]]
    height = random.randrange(FIRST_FAULT_HEIGHT, SNAPSHOT_HEIGHT)
    for_ms = round(drawing.view_change_ms * random.uniform(10, 20))
    fields["faults"].append({"kind": "partition", "groups": groups, "at_height": height, "for_ms": for_ms})
