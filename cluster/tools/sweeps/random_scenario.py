"""A random scenario from a seed: what ``stampede fuzz`` runs.

The seed alone decides everything, on every machine. In the manner of swarm testing each scenario has some kinds of
faults and some features of the network switched off altogether, so that rare combinations are not drowned by common
ones. What is drawn keeps to a few rules, so that a run that fails has found something:

- timeouts are long enough for the links, so that the network can make progress when nothing is broken;
- faults end, and the run goes on for long enough after the last one (a kill that waits for votes may come later);
- no more validators lose their disks, are late or byzantine than the others of any committee can make up for.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from blake3 import blake3

from cluster.common.errors import BadInput
from cluster.misbehaviour.byzantine.registry import BEHAVIOURS
from cluster.scenario import Scenario
from consensus.types import fault_bound
from loadgen.workloads.shipped import FOLDER, NAMES

STOP_HEIGHT: Final = 38
DRAIN_BLOCKS: Final = 4
TIMEOUT_S: Final = 1_200
ED25519_EVERY: Final = 8
"""Every so many seeds real signatures are made; the others have the fast stand-in."""
FIRST_FAULT_HEIGHT: Final = 4
LAST_FAULT_HEIGHT: Final = 30
SNAPSHOT_HEIGHT: Final = 12
"""From here on there are snapshots to join by."""
MAX_FAULTS: Final = 5
SMALLEST: Final = 4
"""Validators of a committee, at least."""
EPOCHS: Final = 0.4
"""Share of the seeds with more validators than that in which committees change."""
UPGRADES: Final = 0.2
"""Share of the seeds that have one."""
STRAINED: Final = 0.1
"""Share of the seeds in which chain, disks or load come to their limits, too."""
MAX_STRAINS: Final = 4
"""At a time, of those that any network bears."""
CUTS: Final = 0.16
"""Share of the seeds in which single links are cut."""
GOVERNED: Final = 0.12
"""Share of the seeds in which system instructions are given and programs are deployed."""
CONFIGS: Final[list[dict[str, Any]]] = [
    {"LANE_TIMER_CYCLES": 600_000},
    {"LANE_TIMER_CYCLES": 2_000_000},
    {"LANE_BASEFEE_SLOPE": 4, "LANE_FEE_MULTIPLIER_MILLI": 1_500},
    {"LANE_BASEFEE_SLOPE": 1, "LANE_FEE_MULTIPLIER_MILLI": 500},
    {"PRIORITY_TIERS": [1, 10, 30, 90], "PRIORITY_FLOOR": 5},
    {"FAIRNESS_WINDOW_BLOCKS": 1},
    {"FAIRNESS_WINDOW_BLOCKS": 20},
    {"MAX_TTL": 20},
    {"MAX_TTL": 1_000},
    {"MAX_CELLS_PER_FIRE": 20_000},
    {"MAX_CYCLES_PER_FIRE": 200_000, "MAX_CYCLES_PER_FIRE_AUCTION_PHASE": 100_000},
]
"""Changes of parameters that governed chains draw from; one that does not fit the others is refused by the chain."""
DEPLOYED: Final = ("heartbeat", "keeper", "token", "builtin:script")
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
"""Byzantine behaviours that are drawn from a source of their own, so that all else is drawn as it is without them."""
FORGED_BLOCKS: Final = ("invalid-block-any-field", "false-proposer")
FORGED_RANGES: Final = ("unproved-blocks",)
FORGED_SNAPSHOTS: Final = ("unproved-snapshot", "false-manifest")
"""Likewise, from another source: lies in blocks, to who catches up, and, wherever two can be spared, to who joins."""
FORGERIES: Final = (*FORGED_BLOCKS, *FORGED_RANGES, *FORGED_SNAPSHOTS)
FORGERS: Final = 0.15
"""Share of the seeds in which one forges, if one more can be spared or is byzantine anyway."""
LIARS: Final = 0.25
"""Share of the seeds in which one says such a lie, if one more can be spared or is byzantine anyway."""
OUTSIDERS: Final = 0.7
"""Share of those in which it does so outside the committee, where committees change and leave one out."""
SURELY_REACHED: Final = 30
"""A view that no run ends before."""

Fields = dict[str, Any]


PROGRAMS: Final = ("bidding_agent", "liquidation_bot", "price_oracle", "subscription", *DEPLOYED[:-1])
"""Those of the programs that ship that scenarios are drawn with."""


def check_installed() -> None:
    """Raise :class:`BadInput` where a program that scenarios are drawn with is not there."""
    if missing := sorted(set(PROGRAMS) - set(NAMES)):
        raise BadInput(f"programs of actors are missing: {', '.join(missing)}; expected them in {FOLDER}")


def random_scenario(seed: int, protocol: str) -> Scenario:
    """The scenario of a seed."""
    return Scenario.model_validate(_Drawing(seed, protocol).scenario())


class _Drawing:
    """One scenario on its way."""

    def __init__(self, seed: int, protocol: str) -> None:
        drawn = blake3(f"{seed} {protocol}".encode(), derive_key_context="stampede fuzz 2").digest()
        self.random = Random(int.from_bytes(drawn, "big"))
        self.seed = seed
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
        """Validators that may be named before the late one is there."""
        self.not_counted_on = int(self.late) + self.byzantine
        """Byzantine validators, and those that lose their disks or have none yet."""
        self.smallest_committee = self.count

    def maybe(self, chance: float = 0.5) -> bool:
        return self.random.random() < chance

    def scenario(self) -> Fields:
        """All of it."""
        fields: Fields = {
            "name": f"fuzz-{self.protocol}",
            "description": f"Drawn from seed {self.seed}.",
            "seed": self.seed,
            "chain": self.chain(),
            "validators": self.validators(),
            "consensus": self.consensus(),
            "links": self.links(),
            "load": self.load(),
            "faults": [*self.faults(), *self.upgrades(), *self.cuts()],
            "stop": {"height": STOP_HEIGHT, "drain_blocks": DRAIN_BLOCKS, "timeout_s": TIMEOUT_S},
            "success": {"heights_compared": 30, "transactions": 5, "fires": 20, "stall_ms": TIMEOUT_S * 1_000},
        }
        random = Random(f"{self.seed}/{self.protocol}/strain")  # of its own: the other seeds are drawn as without this
        if random.random() < STRAINED:
            self.strain(random, fields)
        random = Random(f"{self.seed}/{self.protocol}/lies")
        if random.random() < LIARS:
            self.lie(random, fields["validators"], fields["consensus"])
        random = Random(f"{self.seed}/{self.protocol}/forgeries")
        if random.random() < FORGERS:
            self.forge(random, fields)
        random = Random(f"{self.seed}/{self.protocol}/governance")  # of its own, as that of the lies
        if random.random() < GOVERNED:
            self.govern(random, fields)
        return fields

    # --- what runs --------------------------------------------------------------------------------------------------

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
        return {"policy": policy, "preset": "hardened" if self.maybe(0.3) else None, "params": params}

    def validators(self) -> Fields:
        fields: Fields = {"count": self.count}
        nodes: list[Fields] = [{} for _ in range(self.count)]
        if self.late:
            nodes[-1] = {"joins_at_height": self.random.randint(SNAPSHOT_HEIGHT, 16)}
            fields["nodes"] = nodes
        elif self.byzantine:
            others = sorted(set(BEHAVIOURS) - {*LIES, *FORGERIES})
            for index in self.random.sample(range(self.count), self.byzantine):
                nodes[index] = {"byzantine": self.random.sample(others, self.random.choice([1, 1, 2]))}
            fields["nodes"] = nodes
            random = Random(f"{self.seed}/{self.protocol}/epochs")  # of its own: all else is drawn as without epochs
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
        """Little in most seeds, so that they are many: what goes wrong seldom takes more than a few timers."""
        is_heavy = self.maybe(0.25)
        most, count, pause_ms = (12, 2, 400) if is_heavy else (5, 1, 800)
        flood = {"timers": self.random.randint(3, most), "spread_blocks": self.random.randint(2, 12), "burn": 8_000}
        users: list[Fields] = [{"workload": "flood", "count": count, "interval_ms": pause_ms, "options": flood}]
        others = [workload for workload in ("heartbeat", "churn", "transfer") if self.maybe()]
        interval_ms = pause_ms + self.random.choice([-100, 300])
        users += [{"workload": workload, "count": count, "interval_ms": interval_ms} for workload in others]
        return {"users": users}

    def govern(self, random: Random, fields: Fields) -> None:
        """Parameters that change, timers that their actors do not own, programs that come later."""
        options = {
            "timers": random.randint(1, 4),
            "ahead_blocks": random.choice([4, 6, 10]),
            "cancel_percent": random.choice([20, 50, 80]),
            "configs": random.sample(CONFIGS, random.randint(1, 4)),
            "refused_percent": random.choice([0, 30]),
            "deploys": random.sample(DEPLOYED, random.randint(0, 2)),
        }
        group = {"workload": "governance", "interval_ms": random.choice([500, 900]), "options": options}
        fields["load"]["users"].append(group)  # the last, so that everybody else's number stays the same

    # --- what is scarce ---------------------------------------------------------------------------------------------

    def strain(self, random: Random, fields: Fields) -> None:
        """Make some of what is plentiful scarce, and some of what is rare frequent."""
        strains = (self.keep_little, self.crowd, self.hurry, self.storm, self.run_programs, self.aim)
        for strain in random.sample(strains, random.randint(1, MAX_STRAINS)):
            strain(random, fields)
        self.lie_to_joiners(random, fields)

    def keep_little(self, random: Random, fields: Fields) -> None:
        """Disks that prune."""
        fields["storage"] = {"segment_kib": random.choice([1, 4]), "retained_heights": random.choice([8, 16])}

    def crowd(self, random: Random, fields: Fields) -> None:
        """More timers than the lane has room for."""
        most = {"MAX_CYCLES_PER_FIRE": 50_000, "MAX_CYCLES_PER_FIRE_AUCTION_PHASE": 50_000}
        fields["chain"]["params"] |= {"LANE_TIMER_CYCLES": random.choice([100_000, 300_000]), **most}
        flood = {"timers": 15, "burn": 20_000, "payload_bytes": random.choice([0, 500])}
        fields["load"]["users"].append({"workload": "flood", "interval_ms": 400, "options": flood})

    def hurry(self, random: Random, fields: Fields) -> None:
        """Timers that expire soon, more of them than may be removed at once."""
        most = random.choice([4, 10])
        few = {"SCAN_LIMIT": most, "GC_CYCLES_PER_REMOVAL": 200, "TIMER_GC_CYCLES": 2 * most * 200}
        fields["chain"]["params"] |= {"MAX_TTL": random.choice([14, 16]), **few}

    def storm(self, random: Random, fields: Fields) -> None:
        """Timers that nobody can pay for, or that wait for a price that does not come."""
        options = {"timers": 15, "in_all": 90, "insolvent_percent": random.choice([20, 80])}
        fields["load"]["users"].append({"workload": "storm", "interval_ms": 500, "options": options})

    def run_programs(self, random: Random, fields: Fields) -> None:
        """Actors in Python: jobs and runners, messages, published values, a program that bids for itself and one that
        bids for others, calls that fail."""
        users = fields["load"]["users"]
        oracle = sum(group.get("count", 1) for group in users)
        bot, agent = oracle + 1, oracle + 3
        told = [_call("start", {"every": 4, "pair": "CBY/USD"}), _call("subscribe", {"actor": bot})]
        debt = _call("open_position", {"collateral": 1_000, "debt": 900_000}) | {"value": 1_000}
        bidder = [_call("init", {"deposit": 1_000, "oracle": {"actor": oracle}}), debt]
        calls = [_call("collect", None), _call("top_up", None) | {"value": 10}]
        members = [_call("init", {"fee": 1_000, "period": 3}), _call("join", None) | {"value": 3_000}]
        users += [
            _program("price_oracle", 400, told),
            _program("liquidation_bot", 200, bidder),
            _program("subscription", 600, members, calls),
            _program("bidding_agent", 1_000, [_call("init", {"actor": oracle})]),
            _program("heartbeat", 1_000, [_call("start", {"every": 2, "times": None, "agent": {"actor": agent}})]),
            {"workload": "runner", "count": 3, "interval_ms": 200, "options": {"serves": oracle}},
        ]

    def aim(self, random: Random, fields: Fields) -> None:
        """Kills right after votes, and syncs that fail for one kind of file."""
        for fault in fields["faults"]:
            if fault["kind"] == "kill":
                fault["after_votes"] = random.choice(["notarize", "notarize", "finalize", "finalize", "nullify"])
            elif fault["kind"] == "failed_sync":
                fault["of"] = random.choice(["journal", "blocks", "state"])

    def lie_to_joiners(self, random: Random, fields: Fields) -> None:
        """A validator that loses its disk, and one that serves it false snapshots, where both can be spared."""
        if self.not_counted_on or fault_bound(self.smallest_committee) < 2:
            return
        liar, victim = random.sample(range(self.count), 2)
        nodes: list[Fields] = [{} for _ in range(self.count)]
        nodes[liar]["byzantine"] = ["false-snapshots"]
        fields["validators"]["nodes"] = nodes
        height = random.randrange(SNAPSHOT_HEIGHT, LAST_FAULT_HEIGHT)
        target = self.names[victim]
        fields["faults"].append({"kind": "wipe", "target": target, "at_height": height, "down_ms": self.view_change_ms})

    # --- what is said ------------------------------------------------------------------------------------------------

    def lie(self, random: Random, validators: Fields, consensus: Fields) -> None:
        """Have a validator say what is well-formed and false: one that is byzantine anyway, or one more."""
        nodes: list[Fields] = validators.get("nodes") or [{} for _ in range(self.count)]
        liars = [index for index, node in enumerate(nodes) if node.get("byzantine")]
        if not liars:
            if self.not_counted_on >= fault_bound(self.smallest_committee):
                return
            liars = list(range(len(self.targets)))
        epochs = validators.get("epochs", [])
        soon = [set(epoch["members"]) for epoch in epochs if epoch["from_view"] <= SURELY_REACHED]
        outside = [index for index in liars if any(self.names[index] not in members for members in soon)]
        if outside and random.random() < OUTSIDERS:
            liar, said = random.choice(outside), "outsider"
        else:
            liar, said = random.choice(liars), random.choice(self.lies_of_members(bool(epochs), consensus))
        nodes[liar].setdefault("byzantine", []).append(said)
        validators["nodes"] = nodes

    def lies_of_members(self, changing: bool, consensus: Fields) -> list[str]:
        """Lies in messages of the protocol; those of one protocol take the lead, and so a place in the committee."""
        spoken = [name for name in LIES if BEHAVIOURS[name].protocol in ("", self.protocol) and name != "outsider"]
        if consensus["leader_election"] != "random" or consensus["rebroadcast_ms"] <= self.advance_timeout_ms:
            spoken = [name for name in spoken if name != "lock-breaker"]  # it would never come to it
        return [name for name in spoken if not (changing and BEHAVIOURS[name].protocol)]

    def forge(self, random: Random, fields: Fields) -> None:
        """Have a validator forge blocks or snapshots: one that is byzantine anyway, or one more.

        So that it is heard, the one that asks it first is down for long, or loses its disk.
        """
        nodes: list[Fields] = fields["validators"].get("nodes") or [{} for _ in range(self.count)]
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
        if forged not in FORGED_BLOCKS:
            kind = "kill" if forged in FORGED_RANGES else "wipe"
            height, down_ms = random.randrange(SNAPSHOT_HEIGHT, LAST_FAULT_HEIGHT), 3 * self.view_change_ms
            fault = {"kind": kind, "target": self.names[asking], "at_height": height, "down_ms": down_ms}
            fields["faults"].append(fault)

    # --- what breaks ------------------------------------------------------------------------------------------------

    def faults(self) -> list[Fields]:
        kinds = [kind for kind in self.makers() if self.maybe()]
        while len(kinds) < 2:
            kinds = list(dict.fromkeys([*kinds, self.random.choice(list(self.makers()))]))
        number = self.random.randint(2, MAX_FAULTS)
        heights = sorted(self.random.sample(range(FIRST_FAULT_HEIGHT, LAST_FAULT_HEIGHT), number))
        return [self.fault(height, kinds) for height in heights]

    def upgrades(self) -> list[Fields]:
        """Now and then an upgrade, of a source of its own: everything else is drawn as it is without one."""
        random = Random(f"{self.seed}/{self.protocol}/upgrade")
        if random.random() >= UPGRADES:
            return []
        height, down_ms = (
            random.randrange(FIRST_FAULT_HEIGHT, LAST_FAULT_HEIGHT),
            random.randint(0, 4 * self.interval_ms),
        )
        return [{"kind": "upgrade", "at_height": height, "down_ms": down_ms, "heights_between": random.choice([1, 2])}]

    def cuts(self) -> list[Fields]:
        """Now and then links that are cut while others work, of a source of its own, too: between two sides, or all but
        those to a bridge between two halves."""
        random = Random(f"{self.seed}/{self.protocol}/cuts")
        if random.random() >= CUTS:
            return []
        height, for_ms = (
            random.randrange(FIRST_FAULT_HEIGHT, LAST_FAULT_HEIGHT),
            round(self.view_change_ms * random.uniform(1.5, 5.0)),
        )
        drawn = random.sample(self.targets, len(self.targets))
        middle = len(drawn) // 2
        shape: Fields = {"kind": "cut", "from": drawn[:1], "to": drawn[1 : 1 + random.randint(1, middle)]}
        if random.random() < 0.5:
            shape = {"kind": "partition", "groups": [drawn[: middle + 1], drawn[middle:]]}
        return [{"at_height": height, "for_ms": for_ms, **shape}]

    def fault(self, height: int, kinds: list[str]) -> Fields:
        kind = self.random.choice(kinds)
        if kind in ("wipe", "bit_rot"):
            if self.not_counted_on >= fault_bound(self.smallest_committee) or height < SNAPSHOT_HEIGHT:
                kind = "kill"
            else:
                self.not_counted_on += 1
        return {"kind": kind, "at_height": height, **self.makers()[kind]()}

    def makers(self) -> dict[str, Callable[[], Fields]]:
        """What each kind of fault says beside its kind and its beginning."""
        return {
            "kill": lambda: {
                "target": self.target(),
                "down_ms": self.lasting_ms(),
                "reorders": self.random.random() < 0.3,
            },
            "wipe": lambda: {"target": "random", "down_ms": self.lasting_ms()},
            "disk_full": lambda: {"target": self.target(), "down_ms": self.lasting_ms()},
            "failed_sync": lambda: {"target": self.target(), "down_ms": self.lasting_ms()},
            "bit_rot": lambda: {"target": "random", "down_ms": self.lasting_ms()},
            "pause": lambda: {"target": self.target(), "for_ms": self.lasting_ms()},
            "slow_disk": lambda: {
                "target": self.target(),
                "for_ms": self.lasting_ms(),
                "sync_ms": self.random.randint(2, self.leader_timeout_ms),
            },
            "slow_execution": lambda: {
                "target": self.target(),
                "for_ms": self.lasting_ms(),
                "job_ms": self.random.randint(2, self.leader_timeout_ms),
            },
            "clock_skew": lambda: {
                "target": self.target(),
                "for_ms": self.lasting_ms(),
                "clock_speed": self.random.choice([0.2, 0.5, 0.9, 1.1, 2.0, 5.0]),
            },
            "partition": lambda: {"groups": self.groups(), "for_ms": self.lasting_ms()},
            "one_way_partition": lambda: {**self.some("from"), "for_ms": self.lasting_ms()},
            "degrade": lambda: {**self.worse(), "for_ms": self.lasting_ms()},
            "leader_delay": lambda: {
                "delay_ms": self.random.randint(1, self.leader_timeout_ms),
                "for_ms": self.lasting_ms(),
            },
        }

    def lasting_ms(self) -> int:
        """Longer than a view change, so that the network's answer can be seen."""
        return round(self.view_change_ms * self.random.uniform(1.5, 5.0))

    def target(self) -> str | list[str]:
        choice = self.random.choice(["random", "leader", "f", "some", "all"])
        if choice == "all":
            return self.targets
        if choice != "some":
            return choice
        return self.random.sample(self.targets, self.random.randint(1, fault_bound(self.count) + 1))

    def groups(self) -> list[list[str]]:
        names = self.random.sample(self.targets, len(self.targets))
        cut = self.random.randint(1, len(names) - 1)
        return [names[:cut], names[cut:]]

    def some(self, field: str) -> Fields:
        return {field: self.random.sample(self.targets, self.random.randint(1, fault_bound(self.count) + 1))}

    def worse(self) -> Fields:
        drawn: Fields = {
            "latency_ms": self.latency_ms * self.random.uniform(1.5, 20),
            "loss": self.random.uniform(0.05, 0.6),
            "duplication": self.random.uniform(0.1, 0.8),
            "reordering": self.random.uniform(0.1, 0.8),
            "bandwidth_kbps": self.random.randint(500, 5_000),
        }
        return {name: drawn[name] for name in self.random.sample(list(drawn), self.random.randint(1, 3))}


def _call(handler: str, payload: Any) -> Fields:
    return {"handler": handler, "payload": payload}


def _program(name: str, interval_ms: int, setup: list[Fields], calls: list[Fields] | None = None) -> Fields:
    options = {"program": name, "setup": setup, "calls": calls or []}
    return {"workload": "program", "interval_ms": interval_ms, "options": options}
