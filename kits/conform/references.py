"""The references: ``t8n`` and ``spec`` execute given blocks, ``executor`` those of a validator.

``peer`` is a node outside of the harness.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from cluster.commands.console.command import FILE, FOLDER, Command, Group, Topic, argument, flag, option
from cluster.commands.console.options import CodeOptions
from cluster.common.errors import BadInput, ExitCode
from cluster.common.wording import printable


@dataclass(frozen=True, kw_only=True)
class T8n(CodeOptions):
    TOPIC = Topic.TEST
    HELP = "apply the pure state transition to blocks (for conformance tests)"

    genesis: Path | None = option("the genesis", "G.json", Path)
    blocks: Path | None = option("the blocks, in order", "B.json", Path)
    out: Path | None = option("write the outcome to this file", "O.json", Path, writes=FILE)
    serve: bool = flag(
        'in place of files: read a line {"genesis": …, "blocks": …} from standard input for each case, write its '
        "outcome as a line to standard output"
    )

    steps: bool = flag('with files: also write the steps of each block (with --serve, a request has "steps": true)')

    def permitted(self) -> AbstractContextManager[object]:
        """With ``--serve`` code comes from the program that has started the command, which is trusted."""
        is_served = self.serve and not self.no_code
        return replace(self, allow_code=True, serve=False).permitted() if is_served else super().permitted()

    def run(self) -> int:
        from kits.conform.t8n import run_t8n, serve_t8n

        files = (self.genesis, self.blocks, self.out)
        if self.serve:
            if any(files) or self.steps:
                raise BadInput("--serve: reads from standard input, expected no --genesis, --blocks, --out and --steps")
            serve_t8n(sys.stdin.buffer, sys.stdout)
            return ExitCode.PASS
        if self.genesis is None or self.blocks is None or self.out is None:
            raise BadInput("expected --genesis, --blocks and --out, or --serve (see stampede t8n --help)")
        run_t8n(self.genesis, self.blocks, self.out, self.steps)
        return ExitCode.PASS


@dataclass(frozen=True, kw_only=True)
class SpecRun(Command):
    TOPIC = Topic.TEST
    HELP = "the specification's answer to what t8n takes"
    RUNS_CODE = False
    DESCRIPTION = (
        "Write what the specification (spec/) makes of blocks, in the form of t8n. It has state roots while the state "
        "has at most 2,000 leaves."
    )

    genesis: Path = option("the genesis", "G.json", Path, required=True)
    blocks: Path = option("the blocks, in order", "B.json", Path, required=True)
    out: Path = option("write the answer to this file", "O.json", Path, writes=FILE, required=True)

    def run(self) -> int:
        from cluster.common.files import write_json_for_user
        from kits.conform.t8n_by_spec import answer_of
        from kits.conform.t8n_input import read_blocks, read_genesis

        genesis = read_genesis(self.genesis)
        write_json_for_user(self.out, answer_of(genesis, read_blocks(self.blocks, genesis)))
        return ExitCode.PASS


@dataclass(frozen=True, kw_only=True)
class SpecDiff(CodeOptions):
    TOPIC = Topic.TEST
    HELP = "the first block and field of a run in which its chain deviates from the specification"

    folder: Path = argument("RUN", "a run's folder, such as runs/latest", Path)

    def run(self) -> int:
        from cluster.audit.specified.judge import SpecifiedChain
        from cluster.record.archived_run import read_run

        run = read_run(self.folder)
        chain = SpecifiedChain(run.genesis)
        for record in run.blocks:
            if (found := chain.enter(record.block, record.receipts)) is not None:
                print(printable(f"height {found.height}: {found.violation.what}"))
                print(f"  rules of the block: {' '.join(found.rules)}")
                return ExitCode.FAIL
        if not run.blocks:
            print(f"{self.folder}: the run kept no blocks")
            return ExitCode.INCONCLUSIVE
        print(f"{len(run.blocks):,} blocks are as the specification says")
        return ExitCode.PASS


@dataclass(frozen=True, kw_only=True)
class ServeExecutor(Command):
    TOPIC = Topic.TEST
    HELP = "the reference executor for validators.nodes[].executor, on standard input and output"
    RUNS_CODE = True  # that of the validator that has started it

    mutant: str | None = option("a planted bug of the transition that it has", "NAME")
    tree: bool = flag("keep a state tree, too, and answer its roots")

    def run(self) -> int:
        from kits.conform.executor import run_executor

        run_executor(self.mutant, self.tree)
        return ExitCode.PASS


@dataclass(frozen=True, kw_only=True)
class Peer(CodeOptions):
    TOPIC = Topic.TEST
    HELP = "the reference node for validators.nodes[].external, which takes part in a live testnet"

    scenario: Path = argument("SCENARIO", "the scenario that the testnet runs (YAML)", Path)
    folder: Path = argument("RUN", "the folder of the live run; it may come later", Path)
    key: Path = option("the node's Ed25519 secret, in hex", "FILE", Path, required=True)
    data: Path = option("the node's data folder", "DIR", Path, required=True, writes=FOLDER)
    mutant: str | None = option("a planted bug that it has", "NAME")
    until_eof: bool = flag("end with standard input, too")

    def run(self) -> int:
        from kits.conform.peer import start_peer

        start_peer(self.scenario, self.folder, self.key, self.data, self.mutant, self.until_eof)
        return ExitCode.PASS


REFERENCES: Final = {
    "t8n": T8n,
    "spec": Group(
        "execute the specification of the protocol, spec/", {"run": SpecRun, "diff": SpecDiff}, "ACTION", Topic.TEST
    ),
    "executor": ServeExecutor,
    "peer": Peer,
}
