"""``stampede policy new``, ``check`` and ``profile``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cluster.commands.console.command import FILE, Command, Group, Topic, argument, option
from cluster.commands.console.options import CodeOptions, parse_seed
from cluster.commands.console.output import console, print_line
from cluster.common.errors import BadInput, ExitCode
from validator.chain.genesis import Policy
from validator.primitives.user_file import NAME_PATTERN, SUFFIX

if TYPE_CHECKING:
    from kits.market.policy.profiler import PolicyProfile
    from validator.chain.genesis import Genesis

SLOWEST: Final = 10
"""The number of blocks that a profile lists."""
NS_PER_MS: Final = 1_000_000


@dataclass(frozen=True, kw_only=True)
class New(Command):
    HELP = "write a policy that runs, with every hook and what it returns"
    TOPIC = Topic.ECONOMICS
    RUNS_CODE = False

    name: str = argument("NAME", "its name: NAME.py is written into this folder")
    base: str = option(
        "shipped policy from which it is derived (default %(default)s)",
        "POLICY",
        choices=[each.value for each in Policy],
        default=Policy.FIFO.value,
    )

    def run(self) -> int:
        from cluster.common.files import write_for_user
        from kits.market.policy.template import template

        if not re.fullmatch(NAME_PATTERN, self.name):
            raise BadInput(f"NAME: expected lower-case letters, digits, '-' and '_', at most 64; got {self.name!r:.80}")
        path = Path(f"{self.name}{SUFFIX}")
        if path.exists():
            raise BadInput(f"{path}: is there already; expected another name")
        write_for_user(path, template(self.name, Policy(self.base)))
        print(f"{path}: written; stampede policy check {path} runs it")
        return ExitCode.PASS


@dataclass(frozen=True, kw_only=True)
class DrawnRun(CodeOptions):
    """What ``check`` and ``profile`` have in common."""

    TOPIC = Topic.ECONOMICS

    file: Path = argument("FILE", "the policy", Path)
    seed: int = option("seed from which the run is drawn (default %(default)s)", "N", parse_seed, default=1)
    parameters: Sequence[str] = option(
        "value of a parameter that the policy states; repeatable", "NAME=VALUE", name="--param", repeats=True
    )


@dataclass(frozen=True, kw_only=True)
class Check(DrawnRun):
    HELP = "read a policy for what differs between processes, and judge a drawn run"
    DESCRIPTION = (
        "Reads the file for what may differ between processes. Then it simulates a run that is drawn from the seed, has"
        " two processes with other hash seeds execute its blocks again, and judges it. 0: nothing is wrong,"
        " 1: something is, 2: the file is no policy, 3: no timer fired."
    )

    def run(self) -> int:
        from kits.market.policy.check import check
        from kits.market.policy.drawn import drawn_scenario

        scenario = drawn_scenario(self.file, self.seed, self.parameters)
        _, policy = scenario.chain.policies()
        assert policy is not None, "the policy is a file"
        checked = check(scenario, policy)
        print("\n".join(checked.lines))
        return checked.exit_code


@dataclass(frozen=True, kw_only=True)
class Profile(DrawnRun):
    HELP = "run a policy in a drawn run, and print the time of each line and block"

    json: Path | None = option("also write the profile to FILE as JSON", writes=FILE)

    def run(self) -> int:
        from time import perf_counter_ns

        from cluster.audit.chains import longest_chain
        from cluster.common.files import write_json_for_user
        from cluster.watches.watched_simulation import simulate
        from kits.market.policy.drawn import drawn_scenario
        from kits.market.policy.profiler import profile

        record = simulate(drawn_scenario(self.file, self.seed, self.parameters), self.seed)
        found = profile(record.genesis, longest_chain(record.lives), perf_counter_ns)
        _print_profile(found, record.genesis)
        if self.json is not None:
            write_json_for_user(self.json, _page(found, record.genesis), indent=1)
        return ExitCode.PASS


def _page(found: PolicyProfile, genesis: Genesis) -> dict[str, Any]:
    assert genesis.policy_file is not None
    return {
        "policy": genesis.policy_name,
        "policy_parameters": genesis.policy_parameters,
        "blocks_ns": found.blocks_ns,
        "lines": [
            {"line": line, "runs": found.lines.runs[line], "time_ns": found.lines.times_ns[line]}
            for line in sorted(found.lines.runs)
        ],
    }


def _print_profile(found: PolicyProfile, genesis: Genesis) -> None:
    from rich.table import Table
    from rich.text import Text

    assert genesis.policy_file is not None
    source, lines, blocks = genesis.policy_file.source.splitlines(), found.lines, found.blocks_ns
    table = Table("line", "runs", "ms", "text", box=None)
    for line in sorted(lines.runs):
        text = Text(source[line - 1], overflow="ellipsis", no_wrap=True)
        table.add_row(str(line), f"{lines.runs[line]:,}", f"{lines.times_ns[line] / NS_PER_MS:.2f}", text)
    slowest = sorted(range(len(blocks)), key=lambda place: -blocks[place])[:SLOWEST]
    of_blocks = Table("height", "ms", box=None)
    for place in slowest:
        of_blocks.add_row(str(place + 1), f"{blocks[place] / NS_PER_MS:.2f}")
    output = console()
    print_line(output, f"{genesis.policy_file.file}: lines with what they call")
    output.print(table)
    print_line(output, f"the slowest of {len(blocks):,} blocks, without the trace")
    output.print(of_blocks)


TOOLS: Final = {"new": New, "check": Check, "profile": Profile}
COMMANDS: Final = {
    "policy": Group("begin, check and profile your own scheduling policy", TOOLS, "TOOL", Topic.ECONOMICS)
}
