"""A session on the terminal: its blocks, the final state, the cost of the handlers; and a program's profile.

The output is plain lines for pipes: nothing is cut or wrapped to a width.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from rich.console import Console
from rich.text import Text

from cluster.common.wording import counted, printable
from cluster.local_chain.bare_chain import DEVELOPER, Execution, PlayedBlock, decoded
from kits.actors.profiler import LineProfile
from kits.actors.session import Actor, HandlerUse, Session, handler_uses
from kits.actors.values import SHOWN_CHARACTERS, show
from validator.chain.block import (
    Bidder,
    Cancelled,
    Event,
    Extended,
    Locked,
    TimerChange,
    UnwatchableKey,
    WatchableKey,
    Watching,
)

FAILED: Final = "bold red"
QUIET: Final = "dim"
HEADING: Final = "bold"
PAYLOAD_CHARACTERS: Final = 48
SHORT_PAYLOAD: Final = 20
"""Maximum length of a payload that is shown in the line of its execution; a longer one has a separate line."""
ID_CHARACTERS: Final = 8
HOT_PERMILLE: Final = 100
"""A line is highlighted if it has at least this share of the profile's cycles, in parts per thousand."""
MAX_FAILURES_SHOWN: Final = 5
MARGIN: Final = 14
"""Width, in characters, of the first column, which shows ``block N``."""


def print_session(console: Console, session: Session) -> None:
    """Print the blocks of a session, its final state, and the resources that handlers used."""
    _print_actors(console, session)
    _print_blocks(console, session)
    _print_state(console, session)
    uses = handler_uses(session)
    if uses:
        _heading(console, "what ran")
        print_lines(console, _use_lines(uses))
    console.print()
    console.print(_summary(session), soft_wrap=True)


def _print_actors(console: Console, session: Session) -> None:
    rows = [[actor.name, f"0x{actor.address.hex()}", str(actor.file.path)] for actor in session.actors]
    print_lines(console, _aligned([*rows, ["developer", f"0x{DEVELOPER.hex()}", "who deploys and calls"]]))


def _summary(session: Session) -> Text:
    ran, failed = len(session.executions), session.failures
    what = f"{session.chain.view.height:,} blocks, {ran:,} runs: "
    if not failed:
        return Text.assemble(what, ("none failed", "bold green"))
    return Text.assemble(what, (f"{failed:,} failed", FAILED))


# --- blocks -----------------------------------------------------------------------------------------------------------


def _print_blocks(console: Console, session: Session) -> None:
    _heading(console, "blocks")
    names = session.names
    titles = {id(each): _title(each, names) for each in session.executions}
    width = max(map(len, titles.values()), default=0)
    for is_quiet, group in groupby(session.blocks, key=_quietness):
        blocks = list(group)
        if is_quiet is not None:
            _say(console, _quiet_line(blocks), style=QUIET)
            continue
        for block in blocks:
            margin = f"block {block.height}"
            for execution in block.executions:
                _print_execution(console, session, execution, f"{margin:<{MARGIN}}", titles[id(execution)].ljust(width))
                margin = ""
            for event in block.events:
                _say(console, f"{margin:<{MARGIN}}{_event(event, names, whose=True)}", style="yellow")
                margin = ""


def _quietness(block: PlayedBlock) -> tuple[tuple[str, int], ...] | None:
    """Key by which consecutive blocks are grouped into one output line; ``None`` for a block with executions or events.

    The key is the numbers of timers that are due and wait.
    """
    return tuple(sorted(block.waiting.items())) if block.is_quiet else None


def _quiet_line(blocks: Sequence[PlayedBlock]) -> str:
    first, last = blocks[0], blocks[-1]
    many = f"blocks {first.height}–{last.height}" if first is not last else f"block {first.height}"
    waiting = ", ".join(f"{counted(count, 'timer')} due, {why}" for why, count in first.waiting.items())
    return f"{many:<{MARGIN - 1}} {waiting or 'nothing'}"


def _title(execution: Execution, names: Mapping[bytes, str]) -> str:
    name = names.get(execution.actor, "?")
    if not execution.handler:
        return f"{execution.kind:<9}{name}"
    program = execution.program
    payload = "" if program is None or execution.kind == "bid" else _shown(program.payload, names)
    return f"{execution.kind:<9}{name}.{execution.handler}({payload if len(payload) <= SHORT_PAYLOAD else '…'})"


def _print_execution(console: Console, session: Session, execution: Execution, margin: str, title: str) -> None:
    cost = f"{execution.cycles:>11,} cycles {execution.cells:>7,} cells"
    fee = f"  fee {execution.fee:,}" if execution.fee else ""
    line = Text.assemble((margin, HEADING), title, "  ", (cost + fee, QUIET))
    if execution.error:
        line.append(f"  ✕ {printable(error_text(execution))}", style=FAILED)
    console.print(line, soft_wrap=True)
    for text, style in _details(session, execution):
        _say(console, f"{'':<{MARGIN}}  {text}", style=style)


def _details(session: Session, execution: Execution) -> Iterator[tuple[str, str]]:
    """The failure and the effects of an execution: output lines, each with its style."""
    names = session.names
    for text in failure_lines(session, execution):
        yield text, "red"
    program, effects = execution.program, execution.effects
    if program is not None:
        payload = _shown(program.payload, names)
        if len(payload) > SHORT_PAYLOAD:
            yield f"with {payload}", ""
        if execution.kind == "bid" and program.sender != program.actor:
            yield f"asked for {_who(program.sender, names)}, which pays", ""
        if program.bid is not None:
            yield _bid(*program.bid), ""
    for movement in effects.movements:
        amount = int.from_bytes(movement.amount)
        yield f"{_who(movement.source, names)} pays {amount:,} to {_who(movement.target, names)}", ""
    for timer in effects.scheduled:
        yield f"timer {_short(timer.timer_id)} for block {timer.trigger_height}", ""
    for change in effects.timer_changes:
        yield _change(change, names), ""
    for event in effects.events:
        yield _event(event, names), "cyan"


def _bid(most: int | None, tip: int | None) -> str:
    """A bid as text; the default agent fills in missing parts."""
    share = "the default agent's tip" if tip is None else f"a tip of {tip:,}"
    if most is None:
        return f"leaves the limit to the default agent, and bids {share}"
    return f"bids at most {most:,} a cycle, {share} included"


def _change(change: TimerChange, names: Mapping[bytes, str]) -> str:
    match change:
        case Cancelled(timer_id):
            return f"timer {_short(timer_id)} cancelled"
        case Extended(timer_id, expires_at):
            return f"timer {_short(timer_id)} expires at {expires_at}"
        case Bidder(timer_id, agent):
            whose = f"timer {_short(timer_id)}" if timer_id else "its timers"
            return f"{_who(agent, names)} bids for {whose}" if agent else "bids for its timers itself again"
        case Locked(timer_id, amount):
            return f"timer {_short(timer_id)} bids {int.from_bytes(amount):,}, which are locked"
        case Watching(timer_id, actor, key):
            return f"timer {_short(timer_id)} watches {printable(repr(key))} of {_who(actor, names)}"
        case WatchableKey(_, key):
            return f"timers may watch {printable(repr(key))}, which is checked for a change"
        case UnwatchableKey(_, key):
            return f"timers may not watch {printable(repr(key))} any more"


def error_text(execution: Execution) -> str:
    """The error of a failed execution, with its words."""
    why = "" if execution.program is None else execution.program.why
    return f"{execution.error}: {why}" if why else execution.error


def failure_lines(session: Session, execution: Execution) -> list[str]:
    """The traceback of a failed execution as output lines, the innermost call first; empty if nothing failed."""
    run = execution.program
    if not execution.error or run is None or not run.places:
        return []
    file = session.actor_at(run.actor).file
    source = file.source.split("\n")
    shown = [f"{file.path}:{place.line} in {place.method}: {source[place.line - 1].strip()}" for place in run.places]
    return [shown[-1], *(f"called at {text}" for text in reversed(shown[:-1]))]


def _event(event: Event, names: Mapping[bytes, str], *, whose: bool = False) -> str:
    fields = dict(event.fields)
    if set(fields) == {"data"}:
        said = fields["data"]
    else:
        said = ", ".join(f"{name} {text}" for name, text in event.fields)
    name = f"event {printable(event.name)}" + (f" of {_who(event.actor, names)}" if whose else "")
    return name + (f": {printable(said)}" if said else "")


# --- final state ------------------------------------------------------------------------------------------------------


def _print_state(console: Console, session: Session) -> None:
    chain, names = session.chain, session.names
    _heading(console, f"after block {chain.view.height}")
    for actor in session.actors:
        console.print(
            Text.assemble((actor.name, HEADING), f" holds {chain.world.balance(actor.address):,}"), soft_wrap=True
        )
        stored = [["", printable(key), _shown(value, names)] for key, value in chain.storage(actor.address).items()]
        print_lines(console, _aligned(stored or [["", "nothing stored"]]))
        published = chain.published(actor.address).items()
        print_lines(console, [f"  published {printable(key)}: {_shown(value, names)}" for key, value in published])
    for timer in chain.timers():
        owner = f"{names.get(timer.actor, '?')}.{printable(timer.handler)}"
        payload = _shown(chain.world.payload_of(timer), names, PAYLOAD_CHARACTERS)
        line = f"timer {_short(timer.timer_id)}: {owner}({payload}) for block {timer.trigger_height}"
        _say(console, line)
    totals = chain.globals
    messages = totals.next_message - totals.first_message
    if messages:
        _say(console, f"{counted(messages, 'message')} wait for the next block")


def _use_lines(uses: Sequence[HandlerUse]) -> list[str]:
    heads = ["", "handler", "runs", "failed", "mean cycles", "max cycles", "mean cells", "max cells"]
    rows = [[use.kind, f"{use.actor.name}.{use.handler}", *(f"{figure:,}" for figure in use[3:])] for use in uses]
    return _aligned([heads, *rows], right_from=2)


# --- profiles ---------------------------------------------------------------------------------------------------------


def print_profile(console: Console, session: Session, profiles: Mapping[str, LineProfile]) -> None:
    """Print where the cycles of a session went: to each line of the first program, to each program, and elsewhere."""
    main = session.actors[0]
    profile = profiles.get(main.file.source, LineProfile())
    _heading(console, f"{main.file.path}, by line")
    _print_listing(console, main, profile)
    _heading(console, "where the cycles went")
    print_lines(console, _aligned(_account(session, profiles), right_from=1))
    _print_failures(console, session)
    console.print()
    console.print(_summary(session), soft_wrap=True)


def _print_listing(console: Console, actor: Actor, profile: LineProfile) -> None:
    total = max(profile.total, 1)
    head = f"{'cycles':>10} {'share':>7} {'host':>10} {'sizes':>9} {'runs':>8} {'line':>5}"
    _say(console, head, style=QUIET)
    for number, text in enumerate(actor.file.source.rstrip("\n").split("\n"), start=1):
        cycles, place = profile.cycles(number), f" {number:>5}  {text}".rstrip()
        if not cycles and not profile.runs[number]:
            _say(console, f"{'':<48}{place}", style=QUIET)
            continue
        figures = f"{cycles:>10,} {_share(cycles, total):>7} {_figure(profile.host[number]):>10}"
        figures += f" {_figure(profile.sizes[number]):>9} {_figure(profile.runs[number]):>8}"
        style = FAILED if cycles * 1_000 >= total * HOT_PERMILLE else ""
        console.print(Text.assemble((figures, style), place), soft_wrap=True)
    legend = "host: of it host calls and what crosses the border; sizes: of it what depends on the sizes of values"
    _say(console, legend, style=QUIET)


def _print_failures(console: Console, session: Session) -> None:
    """Print the first failed runs, with their lines."""
    failed = [(block, each) for block in session.blocks for each in block.executions if each.error]
    if failed:
        _heading(console, "what failed")
    for block, execution in failed[:MAX_FAILURES_SHOWN]:
        margin, title = f"{f'block {block.height}':<{MARGIN}}", _title(execution, session.names)
        _print_execution(console, session, execution, margin, title)
    if len(failed) > MAX_FAILURES_SHOWN:
        _say(console, f"and {len(failed) - MAX_FAILURES_SHOWN:,} more")


def _account(session: Session, profiles: Mapping[str, LineProfile]) -> list[list[str]]:
    """Table rows: the cycles charged by each program, those charged outside of programs, and the sum.

    The sum counts each cycle once.
    """
    rows: list[tuple[str, int]] = []
    for source, profile in profiles.items():
        files = dict.fromkeys(str(actor.file.path) for actor in session.actors if actor.file.source == source)
        rows.append((f"lines of {', '.join(files)}", profile.total))
    around: dict[str, int] = {}
    for execution in session.executions:
        inside = 0 if execution.program is None else execution.program.cycles
        around[execution.kind] = around.get(execution.kind, 0) + execution.cycles - inside
    rows += [(_AROUND.get(kind, kind), cycles) for kind, cycles in around.items() if cycles]
    ahead, total = session.cycles_paid_ahead, session.cycles_charged
    if ahead:
        rows.append(("messages and callbacks: paid for by the lines that sent them", -ahead))
    rows.append(("charged in all", total))
    return [[name, f"{cycles:,}", _share(cycles, max(total, 1))] for name, cycles in rows]


_AROUND: Final = {
    "deploy": "deployments: transactions, checking and compiling",
    "call": "calls: each transaction's own price",
    "fire": "fires: each fire's own price",
    "message": "messages: each message's own price",
    "bid": "bids: up to the least that a query costs",
}
"""Names of the charges that belong to no line of a program, keyed by kind of execution."""


def _share(part: int, whole: int) -> str:
    return f"{part * 100 / whole:.1f} %"


def _figure(number: int) -> str:
    return f"{number:,}" if number else ""


# --- helpers ----------------------------------------------------------------------------------------------------------


def _say(console: Console, text: str, style: str = "") -> None:
    """Print a line without markup, cutting or wrapping."""
    console.print(Text(text, style=style), soft_wrap=True)


def _heading(console: Console, text: str) -> None:
    console.print()
    _say(console, text, style="bold underline" if console.is_terminal else "")


def print_lines(console: Console, lines: Sequence[str]) -> None:
    """Print lines without markup, cutting or wrapping."""
    for line in lines:
        _say(console, line)


def _aligned(rows: Sequence[Sequence[str]], right_from: int = 1_000) -> list[str]:
    """Rows as lines with aligned columns; columns from ``right_from`` on are aligned to the right."""
    widths = [max(len(row[i]) for row in rows if i < len(row)) for i in range(max(map(len, rows)))]
    return [
        "  ".join(
            cell.rjust(widths[i]) if i >= right_from else cell.ljust(widths[i]) for i, cell in enumerate(row)
        ).rstrip()
        for row in rows
    ]


def _shown(encoded: bytes, names: Mapping[bytes, str], most: int = SHOWN_CHARACTERS) -> str:
    """Text of an encoded value (from storage or a payload), with at most ``most`` characters."""
    return show(decoded(encoded), names, most)


def _who(address: bytes, names: Mapping[bytes, str]) -> str:
    return names.get(address, f"0x{address.hex()}")


def _short(timer_id: bytes) -> str:
    return timer_id.hex()[:ID_CHARACTERS]
