"""``stampede explore``: every order of deliveries, timeouts and crashes of a small consensus."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cluster.commands.console.command import FILE, SEVERAL, Command, Topic, option
from cluster.commands.console.options import whole_number
from cluster.commands.console.output import console, print_line
from cluster.commands.sweeps.commands import worker_count
from cluster.common.errors import BadInput, ExitCode
from cluster.common.suggestions import unknown

if TYPE_CHECKING:
    from kits.explore.exploration import Explored
    from kits.explore.scope import Scope

FAULTS: Final = ("none", "crash", "byzantine", "forger", "slow-disks")
DEFAULT_FAULTS: Final = ("none", "crash", "byzantine", "forger")
MAX_VALIDATORS: Final = 10
MAX_VIEWS: Final = 10
MAX_CRASHES: Final = 3
DEFAULT_STATES: Final = 200_000
MAX_STATES: Final = 100_000_000
DEFAULT_MINUTES: Final = 10
SECONDS_PER_MINUTE: Final = 60
SCHEDULE_FILE: Final = Path("explore-schedule.json")


@dataclass(frozen=True, kw_only=True)
class Explore(Command):
    TOPIC = Topic.SEARCH
    HELP = "try every order of events of a small consensus"
    RUNS_CODE = False
    DESCRIPTION = (
        "Visits all states that a few validators reach in a few views, whatever arrives, expires or crashes when."
        " 0: all states were visited, 1: a rule is broken, 3: the search was bounded and found nothing."
    )

    protocol: str = option("consensus (default %(default)s)", choices=("simplex", "hotstuff"), default="simplex")
    validators: int = option(
        "number of validators (default %(default)s)",
        "N",
        whole_number("number of validators", 1, MAX_VALIDATORS),
        default=4,
    )
    views: int = option(
        "number of views (default %(default)s)", "N", whole_number("number of views", 1, MAX_VIEWS), default=3
    )
    faults: Sequence[str] = option(
        f"what goes wrong, a search each: {', '.join(FAULTS)} (default: {' '.join(DEFAULT_FAULTS)})",
        "FAULT",
        nargs=SEVERAL,
        choices=FAULTS,
        default=DEFAULT_FAULTS,
    )
    give_ups: int | None = option(
        "honest votes in all that give a view up (default: any number)", "N", whole_number("number of votes", 0, 100)
    )
    crashes: int = option(
        "restarts in all, with the fault crash or slow-disks (default %(default)s)",
        "N",
        whole_number("number of crashes", 1, MAX_CRASHES),
        default=1,
    )
    mutant: str | None = option("plant this bug in all validators", "NAME")
    max_states: int = option(
        f"states after which a search ends (default: {DEFAULT_STATES:,})",
        "N",
        whole_number("number of states", 1, MAX_STATES),
        default=DEFAULT_STATES,
    )
    minutes: int = option(
        "minutes after which a search ends (default %(default)s)",
        "N",
        whole_number("number of minutes", 1, 10_000),
        default=DEFAULT_MINUTES,
    )
    workers: int = option("searches at a time (default %(default)s)", "N", worker_count, default=1)
    json: Path | None = option("also write the result to FILE", writes=FILE)
    schedule: Path | None = option(f"write the schedule of a violation to FILE (default {SCHEDULE_FILE})", writes=FILE)
    replay: Path | None = option("perform the schedule in FILE instead", "FILE", Path)

    def run(self) -> int:
        return self._explore() if self.replay is None else self._replay(self.replay)

    def _replay(self, path: Path) -> int:
        from kits.explore.schedule import lines_of, read_schedule, replay

        output = console()
        replayed = replay(read_schedule(path))
        for line in lines_of(replayed.steps):
            print_line(output, line)
        print_line(output, f"violation: {replayed.problem}" if replayed.problem else "no rule is broken")
        return ExitCode.PASS if replayed.problem is None else ExitCode.FAIL

    def _explore(self) -> int:
        from cluster.common.files import all_tried, check_target, write_json_for_user

        scopes = self.scopes()
        check_target(self.schedule or SCHEDULE_FILE)
        output = console()
        done: dict[int, Explored] = {}
        with all_tried() as trying:
            for number, explored in self._results(scopes):
                done[number] = explored
                print_line(output, explored.line)
                if explored.schedule is not None and not any(each.schedule for each in list(done.values())[:-1]):
                    with trying():
                        self._print_violation(explored)
            results = [done[number] for number in sorted(done)]
            with trying():
                write_json_for_user(self.json, {"searches": [each.page() for each in results]})
        if any(each.schedule is not None for each in results):
            return ExitCode.FAIL
        return ExitCode.PASS if all(each.is_exhausted for each in results) else ExitCode.INCONCLUSIVE

    def _print_violation(self, explored: Explored) -> None:
        import msgspec

        from cluster.common.files import write_for_user
        from kits.explore.schedule import lines_of

        output, schedule = console(), explored.schedule
        assert schedule is not None
        for line in lines_of(schedule.steps):
            print_line(output, f"  {line}")
        page = msgspec.json.format(msgspec.json.encode(schedule), indent=2)
        target = self.schedule or SCHEDULE_FILE
        write_for_user(target, page.decode() + "\n")
        print_line(output, f"  again: stampede explore --replay {target}")

    def scopes(self) -> list[Scope]:
        """The searches: one for each fault, and of byzantine validators one for each."""
        from cluster.misbehaviour.planted import bugs_of_engines
        from kits.explore.scope import Scope

        engines = bugs_of_engines()
        if self.mutant is not None and self.mutant not in engines:
            raise BadInput(f"--mutant: {unknown('bug of the consensus engines', self.mutant, engines)}")
        make: Any = partial(
            Scope,
            protocol=self.protocol,
            validators=self.validators,
            views=self.views,
            give_ups=self.give_ups,
            mutant=self.mutant,
        )
        scopes: dict[str, list[Scope]] = {
            "none": [make()],
            "crash": [make(crashes=self.crashes)],
            "byzantine": [make(byzantine=index) for index in range(self.validators)],
            "forger": [make(forges=True)],
            "slow-disks": [make(crashes=self.crashes, slow_disks=True)],
        }
        if "byzantine" in self.faults and self.validators < 4:
            raise BadInput(f"--faults byzantine: {self.validators} validators withstand none, expected 4 or more")
        return [scope for fault in dict.fromkeys(self.faults) for scope in scopes[fault]]

    def _results(self, scopes: Sequence[Scope]) -> Iterator[tuple[int, Explored]]:
        from cluster.commands.sweeps.fanout import run_each
        from kits.explore.exploration import explore

        seconds = self.minutes * SECONDS_PER_MINUTE
        work = partial(explore, max_states=self.max_states, seconds=seconds, now_s=time.monotonic)
        return run_each(work, scopes, self.workers, "search")


COMMANDS: Final = {"explore": Explore}
