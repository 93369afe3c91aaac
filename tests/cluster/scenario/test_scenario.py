"""Scenario files: wrong ones are refused in one line, shipped ones load, and their reference names every field."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from cluster.common.errors import BadInput, ExitCode
from cluster.common.strict_yaml import MAX_NESTED
from cluster.faults.kind import Lasting
from cluster.misbehaviour.byzantine.registry import BEHAVIOURS
from cluster.misbehaviour.planted import RunCounter
from cluster.scenario import Scenario
from cluster.scenario.files import find_scenario, load_scenario, scenario_text
from cluster.scenario.metric_names import METRICS, SAMPLES
from cluster.scenario.model import LimitsSection
from cluster.scenario.node_setup import node_config
from cluster.scenario.sections.faults import SHIPPED as KINDS
from cluster.scenario.sections.faults import kind_named
from cluster.scenario.sections.measurements.latencies import MATRICES
from cluster.scenario.sections.packaged import section_names, with_sections
from cluster.scenario.sections.validators import ValidatorsSection
from loadgen.workloads import WORKLOADS
from loadgen.workloads.program import ProgramCall
from validator.node.limits import BlockLimits, PoolLimits
from validator.primitives.params import DEFAULTS, GOVERNED, P50Weight, PaymentRule, TieBreak, WeightParty, integer_range

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = sorted((ROOT / "scenarios").rglob("*.yaml"))
REFERENCE = ROOT / "docs" / "scenarios.md"


def scenario_file(folder: Path, text: str) -> Path:
    path = folder / "scenario.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def problem_of(path: Path) -> str:
    """The line that a wrong file is refused with, without the file's name."""
    with pytest.raises(BadInput) as caught:
        load_scenario(path)
    line = str(caught.value)
    assert caught.value.exit_code == ExitCode.BAD_INPUT
    assert line.splitlines() == [line]
    assert line.startswith(f"{path}: ")
    return line.removeprefix(f"{path}: ")


# --- wrong files ----------------------------------------------------------------------------------------------------

WRONG = {
    "unknown field": ("name: a\ncolour: red", "colour: unknown field; known: name, description, seed, chain, "),
    "unknown field in a section": ("name: a\nstop: {hight: 9}", "stop.hight: unknown field; did you mean height?"),
    "unknown field in a list": ("name: a\nload: {users: [{workload: flood, rate: 1}]}", "load.users[0].rate: "),
    "unknown field with a line break": ('name: a\n"b\\nc": 1', "b c: unknown field; "),
    "field that is no text": ("name: a\n1: 2", "[1]: "),
    "missing field": ("seed: 1", "name: is missing"),
    "number from a string": ("name: a\nseed: '1'", "seed: expected a whole number, got '1'"),
    "float from a string": (
        "name: a\nlinks: {latency_ms: '20'}",
        "links.latency_ms: expected a number, got '20'",
    ),
    "number from a boolean": (
        "name: a\nlinks: {jitter_ms: true}",
        "links.jitter_ms: expected a number, got true",
    ),
    "integer from a float": ("name: a\nstop: {height: 40.0}", "stop.height: expected a whole number, got 40.0"),
    "text from a number": ("name: 7", "name: expected a text, got 7"),
    "section that is a list": ("name: a\nstop: [1]", "stop: expected a mapping of fields, got a list"),
    "section that is empty": ("name: a\nstop:", "stop: expected a mapping of fields, got nothing"),
    "validators that are none": (
        "name: a\nvalidators: true",
        "validators: expected a number, a list of validators or a mapping of fields, got true",
    ),
    "validator that is none": (
        "name: a\nvalidators: [x]",
        "validators.nodes[0]: expected a mapping of fields, got 'x'",
    ),
    "topology that is none": (
        "name: a\nlinks: {topology: 2.5}",
        "links.topology: expected the name of a topology, a list of links or a mapping of fields, got 2.5",
    ),
    "bound that is none": (
        "name: a\nsuccess: {metrics: {fires: 5}}",
        "success.metrics.fires: expected a mapping of fields, got 5",
    ),
    "list that is a section": ("name: a\nfaults: {kind: kill}", "faults: expected a list, got a mapping"),
    "wrong name": ("name: A scenario", "name: expected a name (lower-case letters, digits, - and _, at most 64"),
    "several at once": ("seed: -1\ncolour: red", "name: is missing (and 2 more)"),
    "negative": ("name: a\nseed: -1", "seed: expected at least 0"),
    "too large": ("name: a\nstop: {timeout_s: 86401}", "stop.timeout_s: expected at most 86400"),
    "no number": ("name: a\nlinks: {latency_ms: .nan}", "links.latency_ms: "),
    "no validators": ("name: a\nvalidators: 0", "validators.count: "),
    "empty list of validators": ("name: a\nvalidators: []", "validators.count: "),
    "more nodes than validators": ("name: a\nvalidators: {count: 1, nodes: [{}, {}]}", "validators.nodes: 2 entries"),
    "more hosts than validators": ("name: a\nvalidators: {count: 4, hosts: 5}", "validators.hosts: 5 hosts"),
    "too few hosts": ("name: a\nvalidators: {count: 4, hosts: 2}", "validators.hosts: 2 hosts put 2 validators"),
    "two of one name": ("name: a\nvalidators: [{name: b}, {name: b}]", "validators.nodes: two validators"),
    "a name that is another's default": ("name: a\nvalidators: [{name: validator-1}, {}]", "validators.nodes: two"),
    "unknown mutant": (
        "name: a\nvalidators: [{mutant: nothing}]",
        "validators.nodes[0].mutant: unknown mutant 'nothing'; known: allowance-each-view, another-pays, ",
    ),
    "unknown behaviour": (
        "name: a\nvalidators: [{byzantine: rude}]",
        "validators.nodes[0].byzantine: unknown behaviour 'rude'; known: conflicting-voter, ",
    ),
    "a behaviour of another protocol": (
        "name: a\nvalidators: [{}, {}, {}, {byzantine: lock-breaker}]",
        "validators.nodes[3].byzantine: lock-breaker lies in messages of hotstuff only; consensus.protocol is simplex",
    ),
    "a behaviour twice": (
        "name: a\nvalidators: [{byzantine: [twins, twins]}]",
        "validators.nodes[0].byzantine: a behaviour is named twice",
    ),
    "more byzantine ones than are withstood": (
        "name: a\nvalidators: [{byzantine: twins}, {mutant: double-fire}, {}, {}]",
        "validators.nodes: 2 of 4 validators are byzantine or mutants; at most 1 may be, unless allow_more_faults is",
    ),
    "unknown protocol": (
        "name: a\nconsensus: {protocol: raft}",
        "consensus.protocol: expected 'simplex' or 'hotstuff', got 'raft'",
    ),
    "interval above timeout": (
        "name: a\nconsensus: {block_interval_ms: 2000}",
        "consensus.block_interval_ms: 2000 is not below leader_timeout_ms (2000)",
    ),
    "timeouts out of order": ("name: a\nconsensus: {leader_timeout_ms: 3001}", "consensus.leader_timeout_ms: 3001"),
    "unknown parameter": ("name: a\nchain: {params: {LANE: 1}}", "chain.params.LANE: unknown parameter; known: LANE_"),
    "parameter of the wrong type": ("name: a\nchain: {params: {SCAN_LIMIT: 1.5}}", "chain.params.SCAN_LIMIT: expected"),
    "parameter out of range": ("name: a\nchain: {params: {SCAN_LIMIT: 0}}", "chain.params.SCAN_LIMIT: 0 is out of"),
    "parameters that do not fit": ("name: a\nchain: {params: {EPOCH_LENGTH: 5000}}", "chain.params.RING_BUFFER_SIZE: "),
    "unknown policy": (
        "name: a\nchain: {policy: lottery}",
        "chain.policy: expected 'cip1', 'fifo', 'gba_auction' or 'bias_auction', got 'lottery'",
    ),
    "unknown preset": ("name: a\nchain: {preset: soft}", "chain.preset: expected 'hardened', got 'soft'"),
    "unknown workload": ("name: a\nload: {users: [{workload: chess}]}", "load.users[0].workload: unknown workload"),
    "wrong option": (
        "name: a\nload: {users: [{workload: flood, options: {timers: 0}}]}",
        "load.users[0].options.timers: expected at least 1",
    ),
    "another workload's option": (
        "name: a\nload: {users: [{workload: transfer, options: {timers: 1}}]}",
        "load.users[0].options.timers: unknown field; known: ",
    ),
    "too many users": (
        "name: a\nload: {users: [{workload: flood, count: 99999}, {workload: churn, count: 2}]}",
        "load.users: 100001 users",
    ),
    "unknown fault": ("name: a\nfaults: [{kind: earthquake, target: b, at_height: 1}]", "faults[0].kind: "),
    "fault at an unknown validator": (
        "name: a\nfaults: [{kind: kill, target: validator-4, at_height: 9}]",
        "faults[0].target: no validator is named 'validator-4'; there are leader, random, f, region:NAME, val",
    ),
    "fault after the end": (
        "name: a\nfaults: [{kind: kill, target: validator-0, at_height: 40}]",
        "faults[0].at_height: 40 is not below stop.height (40)",
    ),
    "fault without a kind": ("name: a\nfaults: [{target: b}]", "faults[0].kind: is missing; known: bit_rot, "),
    "fault that is no mapping": (
        "name: a\nfaults: [kill]",
        "faults[0]: expected a mapping of fields, such as {kind: kill, target: leader, at_height: 9}, got 'kill'",
    ),
    "kind that is no text": ("name: a\nfaults: [{kind: [1], at_height: 1}]", "faults[0].kind: unknown fault [1]"),
    "fault without a moment": ("name: a\nfaults: [{kind: kill, target: f}]", "faults[0].at_height: give either"),
    "fault with two moments": (
        "name: a\nfaults: [{kind: kill, target: f, at_height: 1, at_ms: 1}]",
        "faults[0].at_height: give either at_height or at_ms",
    ),
    "fault without an end": (
        "name: a\nfaults: [{kind: pause, target: f, at_ms: 1}]",
        "faults[0].for_ms: give for_ms or until_height",
    ),
    "fault that ends before it begins": (
        "name: a\nfaults: [{kind: pause, target: f, at_height: 5, until_height: 5}]",
        "faults[0].until_height: 5 is not above at_height (5)",
    ),
    "fault after the time is up": (
        "name: a\nfaults: [{kind: kill, target: f, at_ms: 120000}]",
        "faults[0].at_ms: 120000 is not below stop.timeout_s (120)",
    ),
    "unknown field of a fault": (
        "name: a\nfaults: [{kind: kill, target: f, at_ms: 1, for_ms: 1}]",
        "faults[0].for_ms: unknown field; known: at_height, at_ms, after_votes, target, down_ms, ",
    ),
    "word in a list": (
        "name: a\nfaults: [{kind: kill, target: [f, validator-1], at_ms: 1}]",
        "faults[0].target: 'f' cannot be in a list",
    ),
    "target twice": (
        "name: a\nfaults: [{kind: kill, target: [validator-1, validator-1], at_ms: 1}]",
        "faults[0].target: a validator is named twice",
    ),
    "no target": (
        "name: a\nfaults: [{kind: kill, target: [], at_ms: 1}]",
        "faults[0].target: expected at least 1 in the list, got 0",
    ),
    "target that is a number": (
        "name: a\nfaults: [{kind: kill, target: 3, at_ms: 1}]",
        "faults[0].target: expected the name of a validator, a list of such, region:NAME, leader, random or f, got 3",
    ),
    "too many disks": (
        "name: a\nfaults: [{kind: wipe, target: [validator-0, validator-1], at_ms: 1}]",
        "faults[0].target: 2 of 4 validators lose their disks; at most 1 may",
    ),
    "group of a stranger": (
        "name: a\nfaults: [{kind: partition, groups: [[validator-0], [bob]], at_ms: 1, for_ms: 1}]",
        "faults[0].groups[1]: no validator is named 'bob'",
    ),
    "a group that names a validator twice": (
        "name: a\nfaults: [{kind: partition, groups: [[validator-0, validator-0]], at_ms: 1, for_ms: 1}]",
        "faults[0].groups[0]: a validator is named twice",
    ),
    "a cut of nothing": ("name: a\nfaults: [{kind: cut, at_ms: 1, for_ms: 1}]", "faults[0].from: give from or to, or"),
    "one group of all": (
        "name: a\nvalidators: 2\n"
        "faults: [{kind: partition, groups: [[validator-0, validator-1]], at_ms: 1, for_ms: 1}]",
        "faults[0].groups: every two validators share a group",
    ),
    "partition of nobody": (
        "name: a\nfaults: [{kind: one_way_partition, at_ms: 1, for_ms: 1}]",
        "faults[0].from: give from or to, or both",
    ),
    "partition from a stranger": (
        "name: a\nfaults: [{kind: one_way_partition, from: [bob], at_ms: 1, for_ms: 1}]",
        "faults[0].from: no validator is named 'bob'",
    ),
    "degradation of nothing": (
        "name: a\nfaults: [{kind: degrade, at_ms: 1, for_ms: 1}]",
        "faults[0].latency_ms: give at least one of latency_ms, jitter_ms, ",
    ),
    "skew of nothing": (
        "name: a\nfaults: [{kind: clock_skew, target: f, clock_speed: 0.0, at_ms: 1, for_ms: 1}]",
        "faults[0].clock_speed: expected at least 0.01",
    ),
    "skew that is none": (
        "name: a\nfaults: [{kind: clock_skew, target: f, clock_speed: 1.0, at_ms: 1, for_ms: 1}]",
        "faults[0].clock_speed: 1 is the normal speed; expected another one",
    ),
    "as many as withstood where none is": (
        "name: a\nvalidators: 3\nfaults: [{kind: pause, target: f, at_ms: 1, for_ms: 1}]",
        "faults[0].target: f is 0 of 3 validators, so the fault has no target",
    ),
    "upgrade of nobody": (
        "name: a\nvalidators: 3\nfaults: [{kind: upgrade, target: f, at_ms: 1}]",
        "faults[0].target: f is 0 of 3 validators, so the fault has no target",
    ),
    "upgrade of an executor to a planted bug": (
        "name: a\nvalidators: [{}, {executor: x}, {}, {}]\n"
        "faults: [{kind: upgrade, mutant: double-fire, target: [validator-0, validator-1], at_ms: 1}]",
        "faults[0].mutant: validator-1 has an executor, so it may have no planted bug; the executor may have one",
    ),
    "upgrade of all, with an executor, to a planted bug": (
        "name: a\nvalidators: [{}, {executor: x}, {}, {}]\nfaults: [{kind: upgrade, mutant: double-fire, at_ms: 1}]",
        "faults[0].mutant: validator-1 has an executor",
    ),
    "link to itself": (
        "name: a\nfaults: [{kind: degrade, loss: 0.1, from: [validator-0], to: [validator-0], at_ms: 1, for_ms: 1}]",
        "faults[0].from: validator-0 has no link to itself, so the fault has no link",
    ),
    "partition from itself": (
        "name: a\nvalidators: [{region: eu}, {}, {}, {}]\n"
        "faults: [{kind: one_way_partition, from: ['region:eu'], to: [validator-0], at_ms: 1, for_ms: 1}]",
        "faults[0].from: validator-0 has no link to itself, so the fault has no link",
    ),
    "links of one validator": (
        "name: a\nvalidators: 1\nfaults: [{kind: degrade, loss: 0.1, at_ms: 1, for_ms: 1}]",
        "faults[0]: validator-0 has no link to itself, so the fault has no link",
    ),
    "partition from everybody": (
        "name: a\nvalidators: 2\n"
        "faults: [{kind: one_way_partition, to: [validator-0, validator-1], at_ms: 1, for_ms: 1}]",
        "faults[0].to: all validators are on one side",
    ),
    "validator called like a word": ("name: a\nvalidators: [{name: leader}]", "validators.nodes: no validator may be"),
    "region of a stranger": (
        "name: a\nlinks: {regions: {east: [bob]}}",
        "links.regions.east: no validator is named 'bob'; there are validator-0, validator-1, ",
    ),
    "two regions of one validator": (
        "name: a\nlinks: {regions: {east: [validator-0], west: [validator-0]}}",
        "links.regions.west: validator-0 is in east and in west; expected each validator once, in",
    ),
    "latency to an unknown region": (
        "name: a\nlinks: {regions: {east: [validator-0]}, latency_matrix_ms: {east: {west: 1.0}}}",
        "links.latency_matrix_ms: no region is named 'west'",
    ),
    "no bandwidth": ("name: a\nlinks: {bandwidth_kbps: 0}", "links.bandwidth_kbps: "),
    "field given twice": ("name: a\nseed: 1\nseed: 2", "no YAML: line 3: field 'seed' is given twice"),
    "field given twice in a section": ("name: a\nstop:\n  height: 9\n  height: 8", "no YAML: line 4: field 'height'"),
    "unclosed bracket": ("name: [a", "no YAML: line 1: "),
    "unknown anchor": ("name: *a", "no YAML: line 1: found undefined alias 'a'"),
    "two documents": ("name: a\n---\nname: b", "no YAML: line 2: "),
    "foreign tag": ("name: !!python/name:os.system a", "no YAML: line 1: could not determine a constructor"),
    "foreign type": ("name: !!timestamp 2001-09-09", "no YAML: line 1: could not determine a constructor"),
    "endless number": (f"name: a\nseed: {'9' * 5000}", "no YAML: line 2: a number of more than 400 characters"),
    "endless nesting": (f"name: {'[' * 5000}", "no YAML: nested too deeply"),
    "deep nesting": (f"name: {'[' * MAX_NESTED}1{']' * MAX_NESTED}", "no YAML: nested too deeply"),
    "control character": ("name: a\x00", "no YAML: unacceptable character"),
    "list": ("- name: a", "expected a mapping of scenario fields, got list"),
    "text": ("name", "expected a mapping of scenario fields, got str"),
    "an epoch that begins too early": (
        "name: x\nvalidators: {epochs: [{from_view: 9, members: [validator-0]}, {from_view: 9, members: []}]}",
        "validators.epochs[1].from_view: 9 is not above 9",
    ),
    "an unknown member": (
        "name: x\nvalidators: {epochs: [{from_view: 9, members: [validator-7]}]}",
        "validators.epochs[0].members: no validator is named 'validator-7'",
    ),
    "a member twice": (
        "name: x\nvalidators: {epochs: [{from_view: 9, members: [validator-1, validator-1]}]}",
        "validators.epochs[0].members: expected validators, each once, at least one",
    ),
    "two of four late": (
        "name: x\nvalidators: [{joins_at_height: 5}, {joins_at_height: 6}, {}, {}]",
        "validators.nodes: 2 of 4 validators join late; at most 1 may, since the others must be a quorum",
    ),
    "two of a committee of four late": (
        "name: x\nvalidators: {count: 7, nodes: [{joins_at_height: 5}, {joins_at_height: 6}],"
        " epochs: [{from_view: 9, members: [validator-0, validator-1, validator-2, validator-3]}]}",
        "validators.nodes: 2 of 4 validators join late; at most 1 may, since the others must be a quorum",
    ),
    "too late": (
        "name: x\nvalidators: [{joins_at_height: 40}, {}, {}, {}]",
        "validators.nodes[0].joins_at_height: 40 is not below stop.height (40)",
    ),
    "killed before it joins": (
        "name: x\nvalidators: [{joins_at_height: 9}, {}, {}, {}]\n"
        "faults: [{kind: kill, target: validator-0, at_height: 9}]",
        "faults[0].at_height: 9 is not above 9, where validator-0 joins",
    ),
    "unknown topology": (
        "name: a\nlinks: {topology: torus}",
        "links.topology.kind: unknown topology 'torus'; known: full, ring, star, random-regular, small-world, regions,",
    ),
    "topology without a kind": ("name: a\nlinks: {topology: {degree: 4}}", "links.topology.kind: is missing; known: "),
    "another topology's field": (
        "name: a\nlinks: {topology: {kind: ring, hub: b}}",
        "links.topology.hub: unknown field; known: kind",
    ),
    "odd neighbours": (
        "name: a\nlinks: {topology: {kind: small-world, k: 3}}",
        "links.topology.k: expected a multiple of 2, got 3",
    ),
    "degree that does not fit": (
        "name: a\nlinks: {topology: random-regular}",
        "links.topology.degree: 4 is not below the number of validators (4)",
    ),
    "edge of one": (
        "name: a\nlinks: {topology: [[validator-0]]}",
        "links.topology.edges[0].between: expected at least 2 in the list, got 1",
    ),
    "disconnected": (
        "name: a\nlinks: {topology: [[validator-0, validator-1], [validator-2, validator-3]]}",
        "links.topology: validator-2 cannot reach validator-0: the validators are in 2 parts",
    ),
    "unknown latencies": (
        "name: a\nlinks: {latencies: moon}",
        "links.latencies: expected 'azure' or 'ibm', got 'moon'",
    ),
    "region that a provider does not have": (
        "name: a\nlinks: {latencies: azure, regions: {mars: [validator-0]}}",
        "links.latencies: azure knows no region 'mars'; it knows us-east, ",
    ),
    "two places of one validator": (
        "name: a\nvalidators: [{region: east}, {}, {}, {}]\nlinks: {regions: {west: [validator-0]}}",
        "validators.nodes[0].region: links.regions has validator-0 in west, not east",
    ),
    "fault in an unknown region": (
        "name: a\nfaults: [{kind: pause, target: 'region:east', at_ms: 1, for_ms: 1}]",
        "faults[0].target: no region is named 'east'; the scenario has none",
    ),
    "region and one of it": (
        "name: a\nlinks: {regions: {east: [validator-0]}}\n"
        "faults: [{kind: pause, target: ['region:east', validator-0], at_ms: 1, for_ms: 1}]",
        "faults[0].target: a validator is named twice",
    ),
    "group of an unknown region": (
        "name: a\nlinks: {regions: {east: [validator-0]}}\n"
        "faults: [{kind: partition, groups: [['region:west']], at_ms: 1, for_ms: 1}]",
        "faults[0].groups[0]: no region is named 'west'; there are east",
    ),
    "a group that names a validator by its region, too": (
        "name: a\nlinks: {regions: {east: [validator-0]}}\n"
        "faults: [{kind: partition, groups: [['region:east', validator-0]], at_ms: 1, for_ms: 1}]",
        "faults[0].groups[0]: a validator is named twice",
    ),
    "from an unknown region": (
        "name: a\nfaults: [{kind: one_way_partition, from: ['region:east'], at_ms: 1, for_ms: 1}]",
        "faults[0].from: no region is named 'east'",
    ),
    "too many disks of a region": (
        "name: a\nlinks: {regions: {east: [validator-0, validator-1]}}\n"
        "faults: [{kind: wipe, target: 'region:east', at_ms: 1}]",
        "faults[0].target: 2 of 4 validators lose their disks",
    ),
    "standing clock": (
        "name: a\nvalidators: [{clock_speed: 0.0}]",
        "validators.nodes[0].clock_speed: expected at least 0.01, got 0.0",
    ),
    "unknown phase": (
        "name: a\nload: {phases: [{kind: wave}]}",
        "load.phases[0].kind: unknown phase 'wave'; known",
    ),
    "another phase's field": (
        "name: a\nload: {phases: [{kind: pause, rate: 1}]}",
        "load.phases[0].rate: unknown field; ",
    ),
    "endless ramp": (
        "name: a\nload: {phases: [{kind: ramp, to_rate: 1}]}",
        "load.phases[0].until_height: a ramp",
    ),
    "burst without end": (
        "name: a\nload: {phases: [{kind: burst, rate: 2, blocks: 10}]}",
        "load.phases[0].blocks: 10 is not below every (10)",
    ),
    "phase behind an endless one": (
        "name: a\nload: {phases: [{kind: pause}, {kind: pause, from_height: 9}]}",
        "load.phases[0].until_height: is missing, and another phase follows",
    ),
    "overlapping phases": (
        "name: a\nload: {phases: [{kind: pause, until_height: 9}, {kind: pause, from_height: 8}]}",
        "load.phases[1].from_height: 8 is below 9, where the phase before ends",
    ),
    "phase that ends before it begins": (
        "name: a\nload: {phases: [{kind: pause, from_height: 9, until_height: 9}]}",
        "load.phases[0].until_height: 9 is not above from_height (9)",
    ),
    "phase after the load": (
        "name: a\nload: {phases: [{kind: pause, from_height: 40}]}",
        "load.phases[0].from_height: 40 is not below stop.height (40)",
    ),
    "unknown phase of a group": (
        "name: a\nload: {users: [{workload: churn}, {workload: churn, phases: [{kind: wave}]}]}",
        "load.users[1].phases[0].kind: unknown phase 'wave'; known",
    ),
    "phases of a group that are no list": (
        "name: a\nload: {users: [{workload: churn, phases: {kind: pause}}]}",
        "load.users[0].phases: expected a list, got a mapping",
    ),
    "overlapping phases of a group": (
        "name: a\n"
        "load: {users: [{workload: churn, phases: [{kind: pause, until_height: 9}, {kind: pause, from_height: 8}]}]}",
        "load.users[0].phases[1].from_height: 8 is below 9, where the phase before ends",
    ),
    "phase after its group": (
        "name: a\nload: {users: [{workload: churn, until_height: 9, phases: [{kind: pause, from_height: 9}]}]}",
        "load.users[0].phases[0].from_height: 9 is not below the group's until_height (9)",
    ),
    "phase before its group": (
        "name: a\nload: {users: [{workload: churn, from_height: 9, phases: [{kind: pause, until_height: 9}]}]}",
        "load.users[0].phases[0].until_height: 9 is not above the group's from_height (9)",
    ),
    "phase of a group after the load": (
        "name: a\nload: {users: [{workload: churn}, {workload: churn, phases: [{kind: pause, from_height: 40}]}]}",
        "load.users[1].phases[0].from_height: 40 is not below stop.height (40)",
    ),
    "users after the load": (
        "name: a\nload: {users: [{workload: churn, from_height: 41}]}",
        "load.users[0].from_height: 41 is not below stop.height (40)",
    ),
    "users that end before they begin": (
        "name: a\nload: {users: [{workload: churn, from_height: 9, until_height: 8}]}",
        "load.users[0].until_height: 8 is not above from_height (9)",
    ),
    "unknown metric": (
        "name: a\nsuccess: {metrics: {happiness: {at_least: 1}}}",
        "success.metrics.happiness: unknown metric; known: duration_s, heights, ",
    ),
    "unknown samples": (
        "name: a\nsuccess: {samples: {heights: {at_least: 1}}}",
        "success.samples.heights: unknown samples; known: finality_latency_ms, ",
    ),
    "criterion of nothing": (
        "name: a\nsuccess: {metrics: {fires: {}}}",
        "success.metrics.fires.at_least: give",
    ),
    "criterion that nothing meets": (
        "name: a\nsuccess: {metrics: {fires: {at_least: 2, at_most: 1}}}",
        "success.metrics.fires.at_least: 2 is above at_most (1)",
    ),
    "share of a metric": (
        "name: a\nsuccess: {metrics: {fires: {at_least: 2, breach_share: 0.1}}}",
        "success.metrics.fires.breach_share: unknown field; ",
    ),
    "everything may be wrong": (
        "name: a\nsuccess: {samples: {fires_per_block: {at_least: 2, breach_share: 1}}}",
        "success.samples.fires_per_block.breach_share: expected less than 1, got 1",
    ),
    "endless bound": (
        "name: a\nsuccess: {metrics: {fires: {at_least: .inf}}}",
        "success.metrics.fires.at_least: expected a finite number, got inf",
    ),
    "nothing": ("", "expected a mapping of scenario fields, got NoneType"),
}


@pytest.mark.kits
@pytest.mark.parametrize(("text", "expected"), WRONG.values(), ids=WRONG)
def test_a_wrong_file_is_one_line_with_file_path_and_reason(tmp_path: Path, text: str, expected: str) -> None:
    assert problem_of(scenario_file(tmp_path, text)).startswith(expected)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    assert problem_of(tmp_path / "missing.yaml") == "cannot be read: No such file or directory"


def test_a_folder_is_no_scenario(tmp_path: Path) -> None:
    assert problem_of(tmp_path) == "cannot be read: Is a directory"


def test_a_file_that_is_no_text_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_bytes(b"name: \xff\xfe")
    assert problem_of(path).startswith("cannot be read: ")


# --- right files ----------------------------------------------------------------------------------------------------


def test_scenarios_are_shipped() -> None:
    assert {"smoke", "late-join"} <= {path.stem for path in SHIPPED}


def test_no_folder_of_scenarios_is_crowded() -> None:
    assert max(Counter(path.parent for path in SHIPPED).values()) <= 20


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_scenario_is_found_by_its_name_which_no_other_has(path: Path) -> None:
    assert find_scenario(Path(path.stem)) == path


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_scenarios_load(path: Path) -> None:
    scenario = load_scenario(path)
    assert scenario.name == path.stem
    assert scenario.description
    assert scenario.success.heights_compared <= scenario.stop.height


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_scenario_survives_being_written_down(path: Path) -> None:
    """Live hosts get it as JSON, and a run's folder as YAML."""
    scenario = load_scenario(path)
    assert Scenario.model_validate_json(scenario.model_dump_json()) == scenario
    assert Scenario.model_validate(scenario.model_dump(mode="json", exclude_unset=True)) == scenario


def test_only_the_name_must_be_given(tmp_path: Path) -> None:
    scenario = load_scenario(scenario_file(tmp_path, "name: quiet"))
    assert scenario == Scenario(name="quiet")
    assert scenario.validators.names == ["validator-0", "validator-1", "validator-2", "validator-3"]


@pytest.mark.parametrize("given", ["7", "{count: 7}", "[{}, {}, {}, {}, {}, {}, {}]", "[~, ~, ~, ~, ~, ~, ~]"])
def test_validators_have_short_forms(tmp_path: Path, given: str) -> None:
    scenario = load_scenario(scenario_file(tmp_path, f"name: a\nvalidators: {given}"))
    assert scenario.validators.names == [f"validator-{index}" for index in range(7)]
    assert scenario.validators.host_count == 7


def test_hosts_carry_validators_in_turn(tmp_path: Path) -> None:
    scenario = load_scenario(scenario_file(tmp_path, "name: a\nvalidators: {count: 7, hosts: 4}"))
    assert [scenario.validators.host_of(index) for index in range(7)] == [0, 1, 2, 3, 0, 1, 2]


def test_explicit_parameters_override_the_preset(tmp_path: Path) -> None:
    text = "name: a\nchain: {preset: hardened, params: {PRIORITY_FLOOR: 5}}"
    parameters = load_scenario(scenario_file(tmp_path, text)).chain.parameters()
    assert (parameters.priority_floor, parameters.default_tip_cap) == (5, 8)


def test_every_candidate_of_cip1_can_be_set(tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "WEIGHT_PARTY": "deployer",
        "MEDIAN_SMOOTHING_MILLI": 50,
        "WEIGHT_CLIP_MIN_MILLI": 0,
        "WEIGHT_CLIP_MAX_MILLI": 1_500,
        "TIE_BREAK": "aged",
        "MAX_FIRES_PER_BLOCK": 7,
        "LANE_BASEFEE_SLOPE": 8,
        "LANE_FEE_MULTIPLIER_MILLI": 500,
        "PRIORITY_TIERS": [1, 2, 3, 4],
    }
    text = f"name: a\nchain: {{params: {json.dumps(given)}}}"
    named = load_scenario(scenario_file(tmp_path, text)).chain.parameters().to_names()
    assert {name: named[name] for name in given} == given


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        (
            "storage: {retained_heights: 10, snapshot_interval: 11}",
            "snapshot_interval: 11 is above retained_heights (10)",
        ),
    ],
)
def test_limits_under_which_nothing_would_go_on_are_refused(tmp_path: Path, fields: str, problem: str) -> None:
    with pytest.raises(BadInput, match=re.escape(problem)):
        load_scenario(scenario_file(tmp_path, f"name: a\n{fields}"))


def test_each_limit_is_that_of_every_validator() -> None:
    limits = {name: 2_000 + number for number, name in enumerate(LimitsSection.model_fields)}
    limits |= {"max_evictions": 7, "view_window": 8, "proposal_window": 9, "max_held_bytes": 5_000_000}
    plan = Scenario.model_validate({"name": "a", "limits": limits})
    config = node_config(plan, 2, RunCounter())
    assert {**asdict(config.pool), **asdict(config.blocks)}.items() <= limits.items()
    assert {**asdict(config.voting), **asdict(config.pool), **asdict(config.blocks)}.items() >= limits.items()
    usual = node_config(Scenario(name="a"), 0, RunCounter())
    assert (usual.pool, usual.blocks) == (PoolLimits(), BlockLimits())


def test_merge_keys_and_anchors_work(tmp_path: Path) -> None:
    text = """
        name: a
        stop: &limits {height: 50}
        load:
          users:
            - &flood {workload: flood, count: 2}
            - {<<: *flood, count: 3}
    """
    scenario = load_scenario(scenario_file(tmp_path, text))
    assert [group.count for group in scenario.load.users] == [2, 3]


# --- the reference --------------------------------------------------------------------------------------------------


def sections() -> dict[str, type[BaseModel]]:
    """Every model that a scenario is made of, by its heading in the reference."""
    scenario = with_sections(Scenario, section_names())
    found: dict[str, type[BaseModel]] = {"scenario": scenario, **dict(_parts(scenario, ""))}
    found |= {"faults": Lasting, **{name: kind_named(name) for name in KINDS}}
    found |= {f"{name} options": workload.options_type for name, workload in WORKLOADS.items()}
    found["program calls"] = ProgramCall
    return found


TAGGED = {"topology": " topology", "phases": " phase"}
"""Fields of which there are several kinds, and what the reference calls a kind of it besides its name."""


def _parts(model: type[BaseModel], path: str) -> Iterator[tuple[str, type[BaseModel]]]:
    for name, field in model.model_fields.items():
        for part in [] if name == "faults" else _models_in(field.annotation):
            heading = f"{path}{name}"
            if name in TAGGED:
                heading = f"{get_args(part.model_fields['kind'].annotation)[0]}{TAGGED[name]}"
            yield heading, part
            yield from _parts(part, f"{heading}.")


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models_in(argument)]


def documented_rows() -> dict[str, dict[str, list[str]]]:
    """The reference's tables by heading and field: default, range, meaning."""
    rows: dict[str, dict[str, list[str]]] = {}
    heading = ""
    for line in REFERENCE.read_text(encoding="utf-8").splitlines():
        if found := re.fullmatch(r"##+ `([^`]+)`(.*)", line):
            heading = found[1] + found[2]
        elif line.startswith("#"):
            heading = ""
        elif heading and line.startswith("| `"):
            name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
            rows.setdefault(heading, {})[name.strip("`")] = cells
    return rows


def bounds(field: FieldInfo) -> list[str]:
    """A field's numeric bounds as the reference writes them."""
    found = []
    for rule in [*field.metadata, *_inner_rules(field.annotation)]:
        for inner in [rule, *getattr(rule, "metadata", [])]:
            found += [
                f"{value:,}" for value in (getattr(inner, "ge", None), getattr(inner, "le", None)) if value is not None
            ]
    return found


def _inner_rules(annotation: Any) -> list[Any]:
    return [rule for argument in get_args(annotation) for rule in getattr(argument, "__metadata__", ())]


def reference_problems(rows: dict[str, dict[str, list[str]]]) -> list[str]:
    """Where the reference lacks a field, names one that is none, or states another default or range."""
    problems = []
    for heading, model in sections().items():
        table = rows.get(heading, {})
        fields = {field.alias or name: field for name, field in model.model_fields.items()}
        if heading in KINDS:  # the reference states once what faults have in common
            fields = {name: field for name, field in fields.items() if name not in Lasting.model_fields}
        problems += [f"{heading}: {name} is no field" for name in table.keys() - fields.keys()]
        for name, field in fields.items():
            if name not in table:
                problems.append(f"{heading}: {name} has no row")
                continue
            default, allowed, _ = table[name]
            problems += [f"{heading}: {name}: default {default}"] if not _states_default(default, field) else []
            problems += [f"{heading}: {name}: range lacks {each}" for each in bounds(field) if each not in allowed]
    return problems + [f"{heading}: is no section" for heading in rows.keys() - sections().keys()]


def _states_default(text: str, field: FieldInfo) -> bool:
    if field.is_required():
        return text == "required"
    default = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(default, BaseModel):
        return not text.startswith("`")
    return text == f"`{default}`" or yaml.safe_load(text.strip("`")) == default


@pytest.mark.kits
def test_the_reference_names_every_field_with_its_default_and_range() -> None:
    assert reference_problems(documented_rows()) == []


@pytest.mark.parametrize(
    ("heading", "field", "cells"),
    [
        ("stop", "height", None),
        ("stop", "hight", ["`40`", "1 to 1,000,000", ""]),
        ("stop", "height", ["`41`", "1 to 1,000,000", ""]),
        ("stop", "height", ["`40`", "1 to 1,000", ""]),
        ("validators.nodes", "mutant", None),
        ("faults", "at_height", ["`1`", "1 to 1,000,000", ""]),
        ("kill", "down_ms", None),
        ("flood options", "timers", None),
        ("weather", "rain", ["`0`", "", ""]),
    ],
)
def test_a_gap_in_the_reference_is_found(heading: str, field: str, cells: list[str] | None) -> None:
    rows = documented_rows()
    if cells is None:
        del rows[heading][field]
    else:
        rows.setdefault(heading, {})[field] = cells
    assert reference_problems(rows) != []


def test_the_page_of_byzantine_behaviours_has_a_row_for_each() -> None:
    text = (REFERENCE.parent / "byzantine.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `([a-z-]+)` \|", text, re.MULTILINE) == list(BEHAVIOURS)


def test_a_behaviour_is_a_list_of_one_and_more_faults_may_be_allowed() -> None:
    nodes: list[dict[str, Any]] = [{"byzantine": "twins"}, {"byzantine": ["garbage", "silent-leader"]}, {}, {}]
    section = ValidatorsSection.model_validate({"count": 4, "nodes": nodes, "allow_more_faults": True})
    assert [node.byzantine for node in section.nodes] == [["twins"], ["garbage", "silent-leader"], [], []]
    assert [node.is_faulty for node in section.nodes] == [True, True, False, False]


def test_the_reference_names_every_choice() -> None:
    rows = documented_rows()
    assert all(f"`{name}`" in rows["validators.nodes"]["byzantine"][1] for name in BEHAVIOURS)
    assert all(f"`{name}`" in rows["load.users"]["workload"][1] for name in WORKLOADS)


def test_the_reference_names_every_figure() -> None:
    found = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|$", REFERENCE.read_text(encoding="utf-8"), re.MULTILINE))
    assert found == {**METRICS, **SAMPLES}


def test_the_reference_has_every_parameter() -> None:
    """In the protocol's order, with its default and its range; those with a † are governed."""
    text = REFERENCE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([A-Z0-9_]+)`( †)? \| `([^`]+)` \| (.+?) \| .+ \|$", text, re.MULTILINE)
    values = DEFAULTS.to_names().items()
    assert rows == [(name, " †" * (name in GOVERNED), str(value), range_of(name)) for name, value in values]


def range_of(parameter: str) -> str:
    """A parameter's range as the reference writes it."""
    bounds = integer_range(parameter)
    if bounds is not None:
        powers = {10**18: "10**18", 2**96 - 1: "2**96 - 1"}
        return " to ".join(powers.get(bound, f"{bound:,}") for bound in bounds)
    choices: dict[str, type[StrEnum]] = {
        "TIE_BREAK": TieBreak,
        "P50_WEIGHT": P50Weight,
        "WEIGHT_PARTY": WeightParty,
        "PAYMENT_RULE": PaymentRule,
    }
    kind = choices.get(parameter)
    return "four of 0 to 1,000" if kind is None else ", ".join(f"`{choice}`" for choice in kind)


def test_the_reference_names_every_region() -> None:
    rows = re.findall(r"^\| ([a-z-]+) \| ([\w ]*)\| ([\w ]*)\|$", REFERENCE.read_text(encoding="utf-8"), re.MULTILINE)
    for column, name in ((1, "azure"), (2, "ibm")):
        places = {row[0]: row[column].strip() for row in rows if row[column].strip()}
        assert places == MATRICES[name].places  # type: ignore[index]


@pytest.mark.kits
def test_examples_in_the_reference_are_right(tmp_path: Path) -> None:
    examples = re.findall(r"```yaml\n(.*?)```", REFERENCE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(examples) >= 6
    for example in examples:
        named = example if example.startswith("name:") else f"name: a\n{example}"
        load_scenario(scenario_file(tmp_path, named))


# --- runs that are told to end ---------------------------------------------------------------------------------------

PLANS_MUCH = {
    "name": "plans-much",
    "validators": {"count": 5, "nodes": [{}, {}, {}, {}, {"joins_at_height": 300}]},
    "load": {
        "users": [{"workload": "heartbeat", "count": 1, "from_height": 50}],
        "phases": [{"kind": "steady", "from_height": 200, "rate": 1.0}],
    },
    "faults": [
        {"kind": "kill", "target": "validator-0", "at_height": 400},
        {"kind": "pause", "target": "validator-0", "at_ms": 90_500, "for_ms": 10},
    ],
    "stop": {"height": 1_000, "timeout_s": 3_600},
}


@pytest.mark.parametrize(
    ("reached", "stop"), [(0, 401), (400, 401), (401, 401), (402, 402), (5_000, 5_000), (10**7, 10**6)]
)
def test_the_scenario_of_a_run_that_was_stopped_early_can_be_loaded(reached: int, stop: int) -> None:
    """Whatever it plans and never came to."""
    scenario = Scenario.model_validate(PLANS_MUCH)
    ended = scenario.ended_at(reached)
    assert Scenario.model_validate(yaml.safe_load(scenario_text(ended, None))) == ended
    assert ended.stop.height == stop
    assert ended.model_copy(update={"stop": scenario.stop, "success": scenario.success}) == scenario


@pytest.mark.parametrize(
    ("reached", "asked"),
    [(0, (1, 2, 5, 0)), (9, (6, 10, 40, 0)), (44, (30, 49, 196, 0)), (45, (30, 50, 200, 0)), (900, (30, 50, 200, 0))],
)
def test_a_run_that_ends_sooner_has_as_large_a_part_to_show(reached: int, asked: tuple[int, ...]) -> None:
    success = {"heights_compared": 30, "transactions": 50, "fires": 200, "stall_ms": 9_000}
    fields = {"name": "cut", "stop": {"height": 45}, "success": success}
    for change, place in ((success, 3), (success | {"fires": 0}, 2)):
        ended = Scenario.model_validate({**fields, "success": change}).ended_at(reached).success
        found = (ended.heights_compared, ended.transactions, ended.fires, 0)
        assert found[:place] == asked[:place] and found[place] == 0
        assert ended.stall_ms == 9_000


def test_each_thing_that_is_planned_is_before_the_end() -> None:
    for drop, stop in ((("faults",), 301), (("faults", "validators"), 201), (("faults", "validators", "load"), 7)):
        fields = {key: value for key, value in PLANS_MUCH.items() if key not in drop}
        assert Scenario.model_validate(fields).ended_at(7).stop.height == stop
    late_phase = {"workload": "heartbeat", "phases": [{"kind": "pause", "from_height": 30}]}
    assert Scenario.model_validate({"name": "a", "load": {"users": [late_phase]}}).ended_at(7).stop.height == 31
    nothing = Scenario.model_validate({"name": "nothing"}).ended_at(0)
    assert Scenario.model_validate(yaml.safe_load(scenario_text(nothing, None))).stop.height == 1
    injected = Scenario.model_validate({**PLANS_MUCH, "stop": {"height": 1_000, "timeout_s": 91}})
    late = injected.faults[1].model_copy(update={"at_ms": 100_000})
    beyond = injected.model_copy(update={"faults": [late]}).ended_at(7)
    assert beyond.stop.timeout_s == 101
    assert Scenario.model_validate(yaml.safe_load(scenario_text(beyond, None))) == beyond


OLD_CLOCKS = """
name: a
validators: {nodes: [{clock_factor: 1.5}]}
faults: [{kind: clock_skew, target: f, factor: 2.0, at_ms: 1, for_ms: 1}]
"""


def test_fields_are_read_by_their_old_names_too(tmp_path: Path) -> None:
    path = tmp_path / "old.yaml"
    path.write_text(OLD_CLOCKS)
    scenario = load_scenario(path)
    assert scenario.validators.nodes[0].clock_speed == 1.5
    path.write_text(OLD_CLOCKS.replace("clock_factor", "clock_speed").replace("factor", "clock_speed"))
    assert load_scenario(path) == scenario
    path.write_text(OLD_CLOCKS.replace("{clock_factor", "{clock_speed: 1.5, clock_factor"))
    with pytest.raises(BadInput, match="clock_factor is the old name of clock_speed: give one of them"):
        load_scenario(path)
