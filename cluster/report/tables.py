"""The tables of a run's report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from cluster.audit.books import Books
from cluster.audit.ledger import Ledger
from cluster.audit.reexecution.describe import Page, steps_after, steps_before
from cluster.checks.metrics.actor_classes import OTHERS, SHARES, ClassUse
from cluster.checks.metrics.load_latency import QUANTILES, WorkloadLatency, latency_text
from cluster.checks.metrics.metrics import Participation
from cluster.common.checkout import version
from cluster.common.quantiles import quantile
from cluster.common.wording import cut, printable
from cluster.record.run import NO_PRESET, Backend, FaultRecord, RunRecord
from cluster.report.fault_labels import MAX_LISTED, NamedFault, named_faults
from cluster.report.svg import number
from cluster.scenario.files import scenario_hash
from validator.primitives.types import address_text

ROOT_DIGITS: Final = 16
DIFFERENCE_ROWS: Final = 40
"""Maximum number of differing fields of state keys shown per divergence; ``result.json`` has all."""
DIFFERENCE_TEXT: Final = 120
"""Maximum number of characters shown of a differing value."""
MAX_COMMAND_SHOWN: Final = 120
"""Maximum number of characters shown of an executor's command."""
MAX_BADGES: Final = 8
"""Maximum number of faults of one validator with a badge each; with more, each kind of fault has one badge."""
MAX_FAILED_RUNS: Final = 100
"""Maximum number of rows about runs that failed."""
LONG_MS: Final = 10_000
"""Duration in milliseconds from which on durations are shown in seconds."""
BYTES_PER_KIB: Final = 1_024
FINDINGS_SHOWN: Final = 20
"""Maximum number of findings shown per divergence."""


class Table(NamedTuple):
    """A table whose first column is of names, the others of numbers."""

    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def tiles(metrics: Mapping[str, float]) -> list[tuple[str, str, str]]:
    """Name, value and unit of the most important metrics."""
    wanted = (
        ("heights", "final heights", ""),
        ("blocks_per_second", "block rate", "/s"),
        ("fires", "timer fires", ""),
        ("fires_per_second", "fire rate", "/s"),
        ("transactions", "transactions", ""),
        ("finality_latency_p50_ms", "finality p50", "ms"),
        ("finality_latency_p95_ms", "finality p95", "ms"),
        ("backlog_max", "largest backlog", "timers"),
        ("longest_stall_ms", "longest stall", "ms"),
    )
    return [(label, *_in_unit(metrics[name], unit)) for name, label, unit in wanted if name in metrics]


def _in_unit(value: float, unit: str) -> tuple[str, str]:
    """A value's text and unit; long durations in milliseconds become seconds."""
    if unit == "ms" and value >= LONG_MS:
        return number(value / 1_000), "s"
    return number(value), unit


def validator_rows(books: Books) -> list[dict[str, Any]]:
    """A row per validator: final height, state root, faults and other events."""
    rows, badges, executors = [], _badges(books.record), books.record.scenario.validators.executors
    for validator in books.record.validators:
        chain, status = books.chains[validator.name], validator.status or {}
        last = chain.at(chain.tip)
        diverged = next((each for each in books.divergences if each.validator == validator.name), None)
        rows.append(
            {
                "name": validator.name,
                "height": f"{chain.tip:,}",
                "state_root": last.computed_root.hex()[:ROOT_DIGITS] if last else "",
                "starts": status.get("starts", ""),
                "faults": badges.get(validator.name, []),
                "mutant": validator.mutant,
                "executor": _shown_command(executors.get(validator.name)),
                "byzantine": ", ".join(validator.byzantine),
                "diverged": diverged.height if diverged is not None else None,
                "disk": _megabytes(sum((status.get("disk_bytes") or {}).values())),
                "snapshot": chain.first_height - 1,
                "silent": not chain,
            }
        )
    return rows


def participation_table(parts: Sequence[Participation]) -> Table:
    """A row per validator: its part in consensus."""
    rows = [
        (
            part.name,
            f"{part.led:,}",
            f"{part.proposed:,}",
            f"{part.votes:,} of {part.certificates:,}",
            f"{part.height:,}",
        )
        for part in parts
    ]
    return Table(("Name", "Views led", "Proposed, final", "Votes in certificates", "Height"), rows)


def executor_rows(record: RunRecord) -> list[tuple[str, str]]:
    """The validators with a foreign executor, each with its command as it is shown."""
    return [(name, _shown_command(command)) for name, command in record.scenario.validators.executors.items()]


def _shown_command(command: str | None) -> str:
    """A command without control characters, cut to :data:`MAX_COMMAND_SHOWN`; empty if there is none."""
    return cut(printable(command or ""), MAX_COMMAND_SHOWN)


CERTIFICATE_BYTES_OF_EACH: Final = 64
"""Size in bytes of each signature of a finalization. A block is archived with its finalization."""
FILES_MORE: Final = 2
"""Number of files by which an archive may exceed the blocks to keep: the oldest and the newest file, since files are
only removed whole."""
DISK_PARTS: Final = ("blocks", "state", "journal")


def disks(books: Books) -> dict[str, Any]:
    """The disk use of a run: the bound of each part of a disk in words, and each validator's bytes per part at the end.

    ``blocks_bound`` is the bound of an archive in bytes, from the largest block of the run; ``None`` if there is none.
    """
    storage, count = books.record.scenario.storage, books.record.scenario.validators.count
    bound, keep, files = None, storage.keep_blocks, f"files of {storage.segment_kib:,} KiB"
    if keep is not None:
        block = books.record.store.largest + CERTIFICATE_BYTES_OF_EACH * count
        bound = keep * block + FILES_MORE * (storage.segment_kib * BYTES_PER_KIB + block)
    words = {
        "blocks": "all final blocks"
        if keep is None
        else f"{keep:,} blocks, {FILES_MORE} {files} more, and what the auditor or a peer lacks",
        "state": f"what the last {storage.retained_heights:,} heights need, in {files}",
        "journal": f"some {books.record.scenario.limits.journal_blocks:,} final blocks and their votes",
    }
    used = {found.name: (found.status or {}).get("disk_bytes") or {} for found in books.record.validators}
    return {"bounds": words, "blocks_bound": bound, "used": {name: parts for name, parts in used.items() if parts}}


def _disk_facts(books: Books) -> list[tuple[str, str]]:
    """A row for each part of validators' disks: the largest use by a validator at the end, and the bound."""
    found, facts = disks(books), []
    for part in DISK_PARTS if found["used"] else ():
        used = max(parts.get(part, 0) for parts in found["used"].values())
        bound = found["blocks_bound"] if part == "blocks" else None
        of = "" if bound is None else f" of {number(bound / 1e6)} MB"
        facts.append(
            (f"Disk: {part}", f"{number(used / 1e6)} MB{of} at most at the end; kept: {found['bounds'][part]}")
        )
    return facts


def _badges(record: RunRecord) -> dict[str, list[tuple[str, str]]]:
    """The badges of each validator, as text and hint, keyed by its name. There is one badge for each fault that hit it,
    with the fault's name as hint; for many faults one for each kind, with the faults' numbers as hint."""
    hits: dict[str, list[NamedFault]] = {}
    for each in named_faults(record):
        for name in each.hit:
            hits.setdefault(name, []).append(each)
    found: dict[str, list[tuple[str, str]]] = {}
    for name, faults in hits.items():
        if len(faults) <= MAX_BADGES:
            found[name] = [(each.badge, each.fault.name) for each in faults]
            continue
        kinds: dict[str, list[str]] = {}
        for each in faults:
            kinds.setdefault(each.fault.kind.replace("_", " "), []).append(each.number)
        found[name] = [(f"{kind} ×{len(numbers):,}", f"faults {', '.join(numbers)}") for kind, numbers in kinds.items()]
    return found


def fault_kind_table(record: RunRecord) -> Table | None:
    """A row per kind of fault; ``None`` if a page lists faults one by one."""
    if len(record.faults) <= MAX_LISTED:
        return None
    kinds: dict[str, list[FaultRecord]] = {}
    for fault in record.faults:
        kinds.setdefault(fault.kind.replace("_", " "), []).append(fault)
    rows = []
    for kind, faults in sorted(kinds.items(), key=lambda item: (-len(item[1]), item[0])):
        lasted = [
            fault.ended_ms - fault.begun_ms
            for fault in faults
            if fault.begun_ms is not None and fault.ended_ms is not None
        ]
        lengths = [f"{quantile(lasted, share) / 1_000:,.1f} s" if lasted else "–" for share in (0.5, 0.95, 1.0)]
        never, effective = sum(each.begun_ms is None for each in faults), sum(each.took_effect for each in faults)
        rows.append((kind, f"{len(faults):,}", f"{never:,}", f"{effective:,}", *lengths))
    columns = ("Kind", "Faults", "Never began", "Took effect", "Lasted p50", "Lasted p95", "Lasted longest")
    return Table(columns, rows)


def fault_rows(books: Books) -> list[dict[str, str]]:
    """A row per fault: begin, end and effect."""
    rows = []
    for named in named_faults(books.record):
        fault = named.fault
        rows.append(
            {
                "number": named.number,
                "name": fault.title,
                "planned": _planned(fault, books.record.backend),
                "begun": _moment(fault.begun_ms, fault.height_when_begun),
                "ended": _moment(fault.ended_ms, fault.height_when_ended),
                "took_effect": "yes" if fault.took_effect else "no",
                "evidence": fault.evidence,
            }
        )
    return rows


def _moment(at_ms: float | None, height: int | None) -> str:
    return "never" if at_ms is None else f"{at_ms / 1_000:.1f} s, height {'?' if height is None else height}"


def _planned(fault: FaultRecord, backend: Backend) -> str:
    """When a fault was planned to begin, as text. On the live testnet times count from when all hosts are up."""
    if not fault.is_planned:
        return "not planned"
    return f"{fault.planned} after the start" if backend == "live" and fault.at_ms is not None else fault.planned


def class_table(classes: Sequence[ClassUse]) -> Table:
    """A row per class of actors: due timers, fires and lateness."""
    total = sum(group.fires for group in classes) or 1
    late = [f"Late {name}" for _, name in SHARES]
    rows = [
        (
            group.name,
            f"{len(group.actors):,}",
            f"{group.due:,}",
            f"{group.fires:,}",
            f"{100 * group.fires / total:.1f}",
            f"{100 * group.fires / group.due:.1f}",
            f"{group.weight:.2f}",
            *(_blocks(group.lateness_blocks(share)) for share, _ in SHARES),
        )
        for group in classes
    ]
    return Table(("Class", "Actors", "Due", "Fires", "% of fires", "% of due", "Weight", *late), rows)


def failed_run_pages(books: Books, classes: Mapping[bytes, str]) -> list[dict[str, Any]]:
    """The runs that failed, by kind, actor and error, as ``result.json`` has them: the :data:`MAX_FAILED_RUNS` most
    frequent. ``classes`` are those of the actors. A reason is ``None`` if there is none but the error."""
    return [
        {
            "kind": each.kind.value,
            "actor": address_text(each.actor),
            "class": classes.get(each.actor, OTHERS),
            "error": each.error,
            "reason": books.reasons.get(each.key),
            "count": each.times,
            "runs": each.runs,
        }
        for each in books.ledger.outcomes.failures[:MAX_FAILED_RUNS]
    ]


def workload_table(latencies: Sequence[WorkloadLatency]) -> Table:
    """A row per workload: its transactions, and their latency from intended send to finality."""
    counted = ("Sent", "Late", "Turns skipped", "Unsent", "Rejected", "Final", "Never final")
    rows = [
        (
            each.workload,
            *(f"{count:,}" for count in (each.sent, each.late, each.skipped, each.unsent, each.rejected, each.final)),
            f"{each.never_final:,}",
            *map(latency_text, each.quantiles_ms.values()),
        )
        for each in latencies
    ]
    return Table(("Workload", *counted, *(f"{name} (ms)" for _, name in QUANTILES)), rows)


def _megabytes(size: int) -> str:
    return f"{number(size / 1e6)} MB" if size else ""


def _blocks(lateness: int | None) -> str:
    return "–" if lateness is None else f"{lateness:,}"


def divergence_rows(books: Books) -> list[dict[str, Any]]:
    """A row per divergence: the roots, and step and state keys of the difference if known
    (:mod:`cluster.audit.reexecution`)."""
    bisected = {(page["validator"], page["height"]): page for page in books.bisections}
    return [
        {
            "validator": each.validator,
            "height": each.height,
            "reason": each.reason or "no reason given",
            "expected": each.expected_root,
            "computed": each.computed_root,
            "findings": [
                f"{finding.violation.check}: {finding.violation.what}"
                for finding in books.findings
                if finding.evidence and each.validator in finding.validators
            ][:FINDINGS_SHOWN],
            "difference": _difference(bisected.get((each.validator, each.height))),
        }
        for each in books.divergences
    ]


def _difference(page: Page | None) -> dict[str, Any] | None:
    """A bisected divergence as shown: the step, and each field that differs, with its value before the step, the
    validator's value, and the right one; ``None`` if it was not bisected."""
    if page is None:
        return None
    step, right_step = page["step"], page["right_step"]
    fields = [(key["words"], field) for key in page["keys"] for field in key["fields"]]
    fields += [("its receipt", field) for field in page["receipts"]]
    fields += [("the block's header", field) for field in page["figures"]]
    rows = [
        {
            "what": what,
            "field": field["name"],
            **{name: cut(field.get(name, ""), DIFFERENCE_TEXT) for name in ("before", "theirs", "right")},
        }
        for what, field in fields[:DIFFERENCE_ROWS]
    ]
    return {
        "step": None if step is None else step["words"],
        "right_step": None if right_step is None else right_step["words"],
        "spec_step": (step or right_step or {}).get("spec_step"),
        "same_before": steps_before(page["same_steps_before"]),
        "after": steps_after(page["differing_steps_after"]) if page["differing_steps_after"] else "",
        "theirs": page["theirs"],
        "right": page["right"],
        "rows": rows,
        "left_out": len(fields) - len(rows),
        "note": page["note"],
    }


def _burned(ledger: Ledger) -> str:
    lane = ledger.burned_lane_timer
    return f"cycle {ledger.burned_cycle:,}, cell {ledger.burned_cell:,}, lane timer {lane:,}"


def _machine_text(found: Mapping[str, str | int | float]) -> str:
    processors = f"{found['processors']} processors ({found['processor']})"
    return f"{found['system']}, {processors}, {found['memory_gib']} GiB, Python {found['python']}"


def facts(books: Books, date: datetime) -> list[tuple[str, str]]:
    """The table of facts about a run: rows of a name and a value. ``date`` is when the report is written, in UTC."""
    record = books.record
    found = [
        ("Scenario", record.scenario.name),
        ("Backend", "live testnet" if record.backend == "live" else "simulator, virtual time"),
        ("Seed", str(record.seed)),
        ("Commit", record.commit),
        ("Version", version()),
        ("Date", f"{date:%Y-%m-%d %H:%M:%S} UTC"),
        ("Scenario hash", scenario_hash(record.given or record.scenario)),
        ("Machine", _machine_text(record.machine)),
        ("Duration", f"{record.duration_ms / 1_000:.1f} s" + (" (virtual)" if record.backend == "sim" else "")),
        ("Validators", f"{record.scenario.validators.count} on {record.scenario.validators.host_count} hosts"),
        ("Chain", record.genesis.chain_id),
        ("Policy", record.genesis.policy_name),
        ("Preset", record.genesis.preset or NO_PRESET),
        ("Burned", _burned(books.ledger)),
    ]
    if stated := record.genesis.policy_parameters:
        found.append(("Policy's parameters", ", ".join(f"{name} {value:,}" for name, value in stated.items())))
    found += _disk_facts(books)
    if record.digest is not None:
        found.append(("Digest", record.digest))
    return found
