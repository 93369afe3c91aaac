"""A run's transactions and timers, as a collector of OpenTelemetry sees them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from cluster.audit.books import keep_books
from cluster.audit.chains import longest_chain
from cluster.commands.cli.main import main
from cluster.commands.run.reasons import note_reasons
from cluster.common.errors import BadInput
from cluster.record.archive import BlockRecord
from cluster.record.run import RunRecord, Step, StepKind
from cluster.scenario import Scenario
from cluster.scenario.files import scenario_text
from cluster.watches.watched_simulation import simulate
from kits.tracing import otlp
from kits.tracing import ways as ways_module
from kits.tracing.sampler import CHOSEN_PER_BLOCK, Sampler
from kits.tracing.spans import Span
from kits.tracing.step_log import StepLog
from kits.tracing.tracer import Tracer
from kits.tracing.ways import Ways
from spec.encoding import read_block, read_receipts
from tests.cluster.commands.run.test_reasons import EXPECTED, FAILING
from tests.kits.tracing.collector import Collector, GotSpan, collecting
from tests.kits.tracing.span_rules import BLOCKS, problems_of, traces_of
from validator.chain.transactions import transaction_hash

ROOT = Path(__file__).resolve().parents[3]
SCENARIO = Scenario.model_validate(
    {
        "name": "traced",
        "load": {
            "users": [
                {"workload": "heartbeat", "count": 3, "interval_ms": 300},
                {"workload": "transfer", "count": 3, "interval_ms": 200},
            ]
        },
        "faults": [{"kind": "degrade", "loss": 0.4, "at_height": 8, "for_ms": 4_000}],
        "stop": {"height": 25, "drain_blocks": 3},
    }
)


@dataclass(frozen=True)
class Traced:
    """A simulated run and its spans."""

    record: RunRecord
    steps: Sequence[Step]
    chain: Sequence[BlockRecord]
    tracer: Tracer
    spans: Sequence[GotSpan]
    line: str

    def again(self, sampler: Sampler, steps: Sequence[Step] | None = None) -> list[Span]:
        """The spans of the same run, chosen in another way."""
        assert self.tracer._ways is not None
        log = StepLog(4)
        for step in self.steps if steps is None else steps:
            log.note(step)
        ways = Ways(self.tracer._ways._chain, log, sampler)
        found = [span for block in self.chain for span in ways.add(block)]
        return found + ways.finish(self.record.duration_ms)

    def hashes(self) -> dict[bytes, int]:
        """The height of each transaction, by its hash."""
        blocks = [read_block(each.block) for each in self.chain]
        return {transaction_hash(wire): block.header.height for block in blocks for wire in block.transactions}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Traced:
    steps: list[Step] = []
    with collecting() as collector:
        tracer = Tracer(collector.url, tmp_path_factory.mktemp("run"), SCENARIO, "sim")

        def on_step(step: Step) -> None:
            steps.append(step)
            tracer.on_step(step)

        record = simulate(SCENARIO, 1, on_step=on_step)
        chain = longest_chain(record.lives)
        line, is_complete = tracer.finish(record, chain)
        assert is_complete, line
    return Traced(record, steps, chain, tracer, collector.spans, line)


def named(spans: Sequence[GotSpan], name: str) -> list[GotSpan]:
    return [span for span in spans if span.name == name]


def roots(spans: Sequence[GotSpan], prefix: str) -> list[GotSpan]:
    return [span for span in spans if not span.parent and span.name.startswith(prefix)]


def test_the_spans_of_a_run_fit_together(run: Traced) -> None:
    assert problems_of(run.spans) == []
    traces = traces_of(run.spans)
    assert run.line.startswith(f"{len(run.spans):,} spans of {len(traces):,} traces to http://127.0.0.1:")
    names = {span.name for span in run.spans}
    assert names >= {"mempool", "block", "build", "execute", "notarize", "finalize", "finality", "schedule", "fire"}
    assert {span.service for span in run.spans} == {"stampede", *(f"validator-{index}" for index in range(4))}


def test_a_transactions_trace_has_its_way_and_its_times(run: Traced) -> None:
    heights, began_ms = run.hashes(), run.tracer._began_epoch_ms
    first = run.record.first_finalizations
    taken = {step.transaction: step.at_ms for step in reversed(run.steps) if step.kind is StepKind.TAKEN}
    found = roots(run.spans, "transaction")
    for span in found:
        key = bytes.fromhex(span.attributes["stampede.transaction.hash"])
        height = span.attributes["stampede.block.height"]
        assert heights[key] == height
        assert span.end / 1e6 == pytest.approx(began_ms + first[height], abs=0.01)
        assert span.start / 1e6 == pytest.approx(began_ms + taken[key], abs=0.01)
    assert {span.name for span in found} >= {"transaction call", "transaction transfer"}
    per_block = [sum(each == height for each in heights.values()) for height in set(heights.values())]
    assert len(found) == sum(min(CHOSEN_PER_BLOCK, count) for count in per_block)


def test_a_timers_trace_leads_from_its_schedule_to_its_fire(run: Traced) -> None:
    receipts = [read_receipts(each.receipts) for each in run.chain]
    fires = {fire.timer_id.hex(): each.height for each in receipts for fire in each.fires}
    found = roots(run.spans, "timer")
    assert {span.attributes["stampede.timer.outcome"] for span in found} >= {"fired", "pending"}
    for span in found:
        assert span.attributes.get("stampede.timer.fired_at") == fires.get(span.attributes["stampede.timer.id"])
    linked = {target for span in found for target, _, relation in span.links if relation == "scheduled by"}
    assert linked and linked <= traces_of(run.spans).keys()


def test_a_block_after_a_failed_view_does_not_begin_with_the_one_before(run: Traced) -> None:
    """Both have the same height, so the first block of a height that a validator has may be the other one."""
    views = {read_block(each.block).header.height: read_block(each.block).header.view for each in run.chain}
    retried = {height for height in views if height > 1 and views[height] > views[height - 1] + 1}
    assert retried, "the fault made no view fail"
    entered: dict[int, int] = {}
    for step in run.steps:
        if step.kind is StepKind.ENTERED:
            entered.setdefault(step.number, round((run.tracer._began_epoch_ms + step.at_ms) * 1e6))
    blocks = [span for name in BLOCKS for span in named(run.spans, name)]
    seen = [span for span in blocks if span.attributes["stampede.block.height"] in retried]
    assert seen
    for span in seen:
        assert span.start >= entered[span.attributes["stampede.block.view"]] - 1_000


def drop(name: str) -> Callable[[list[GotSpan]], list[GotSpan]]:
    def change(spans: list[GotSpan]) -> list[GotSpan]:
        return [span for span in spans if span is not next(each for each in spans if each.name == name)]

    return change


def put(name: str, **what: Callable[[GotSpan], Any]) -> Callable[[list[GotSpan]], list[GotSpan]]:
    """Change the first span of a name that is in the trace of a timer that fired."""

    def change(spans: list[GotSpan]) -> list[GotSpan]:
        fired = {span.trace for span in spans if span.name == "fire"}
        place = next(place for place, each in enumerate(spans) if each.name == name and each.trace in fired)
        span = spans[place]
        spans[place] = replace(span, **{field: value(span) for field, value in what.items()})
        return spans

    return change


PLANTED = {
    "the parent of build is missing": drop("block"),
    "0 first spans": drop("timer"),
    "a timer's fire or schedule is missing": drop("fire"),
    "a timer's parts are not in order": put("fire", start=lambda span: span.start - 10**10),
    "fire begins before timer": put("fire", start=lambda span: span.start - 10**11),
    "fire ends after timer": put("fire", end=lambda span: span.end + 1),
    "execute ends before it begins": put("execute", end=lambda span: span.start - 1),
    "validator-9 builds a block": put("build", resource=lambda _: {"service.name": "validator-9"}),
    "the id of wait is there 2 times": lambda spans: [*spans, next(span for span in spans if span.name == "wait")],
    "a timer fires before it is due": put(
        "timer", attributes=lambda span: {**span.attributes, "stampede.timer.trigger_height": 10**6}
    ),
    "timer links to a span that is not there": put(
        "timer", links=lambda span: ((b"elsewhere", b"", "scheduled by"), *span.links)
    ),
    "something that does not link back": put("timer", links=lambda _: ()),
}


@pytest.mark.parametrize("problem", PLANTED)
def test_wrong_spans_are_found(run: Traced, problem: str) -> None:
    assert any(problem in each for each in problems_of(PLANTED[problem]([*run.spans])))


def test_steps_at_wrong_times_are_found(run: Traced) -> None:
    """The rules judge what the code makes of a wrong clock, too: it makes no span that ends before it begins."""
    late = [
        step._replace(at_ms=step.at_ms + 5_000.0) if step.kind is StepKind.BEGAN and step.validator == 2 else step
        for step in run.steps
    ]
    assert all(span.end_ms >= span.start_ms for span in run.again(Sampler(), late))


def test_the_choice_follows_from_hashes_alone(run: Traced) -> None:
    def chosen(sampler: Sampler) -> set[int]:
        return {span.trace_id for span in run.again(sampler) if not span.parent_id}

    everything, usual = chosen(Sampler(per_block=None)), chosen(Sampler())
    assert chosen(Sampler()) == usual < everything
    assert {trace & (2**64 - 1) for trace in everything} >= {int.from_bytes(key[:8], "big") for key in run.hashes()}
    assert chosen(Sampler(0.0)) == set()
    half = {span.attributes["stampede.transaction.hash"] for span in run.again(Sampler(0.5, None)) if is_sent(span)}
    assert half == {key.hex() for key in run.hashes() if key[0] < 0x80}


def is_sent(span: Span) -> bool:
    return not span.parent_id and span.name.startswith("transaction")


def test_another_run_has_other_traces_of_the_same_transactions(run: Traced, tmp_path: Path) -> None:
    with collecting() as collector:
        tracer = Tracer(collector.url, tmp_path, SCENARIO, "sim")
        for step in run.steps:
            tracer.on_step(step)
        tracer.finish(run.record, run.chain)
    key = "stampede.transaction.hash"
    one, other = (
        {span.attributes[key]: span.trace for span in roots(each, "trans")} for each in (run.spans, collector.spans)
    )
    assert one.keys() & other.keys() and not {*one.values()} & {*other.values()}, "some may have come too late"


def test_what_a_driver_before_saw_has_no_spans_and_no_wrong_ones(run: Traced) -> None:
    log = StepLog(4)
    for step in run.steps:
        log.note(step)
    assert run.tracer._ways is not None
    ways = Ways(run.tracer._ways._chain, log, Sampler())
    ways.skip(10)
    spans = [span for block in run.chain[10:] for span in ways.add(block)]
    assert min(span.attributes["stampede.block.height"] for span in spans if span.name == "block") == 11
    assert all(span.end_ms >= span.start_ms for span in spans)


def test_pending_timers_are_bounded(run: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ways_module, "MAX_OPEN_TIMERS", 2)
    log = StepLog(4)
    for step in run.steps:
        log.note(step)
    assert run.tracer._ways is not None
    ways = Ways(run.tracer._ways._chain, log, Sampler())
    for block in run.chain:
        ways.add(block)
        assert len(ways._timers) <= 2
    assert ways.timers_left_out


def test_unreadable_blocks_have_no_spans(run: Traced) -> None:
    assert run.tracer._ways is not None
    ways = Ways(run.tracer._ways._chain, StepLog(4), Sampler())
    assert ways.add(BlockRecord(b"no block", b"", b"")) == [] and ways.height == 1


def test_steps_are_bounded_and_the_first_counts() -> None:
    log = StepLog(4_000)
    for height in range(1, 2_000):
        log.note(Step(StepKind.FINAL, float(height), 3, height))
        log.note(Step(StepKind.FINAL, 9.0, 3, height))
        log.note(Step(StepKind.NOTARIZED, 9.0, 3, height))
    assert log.of_block(1, 1).final == {} and log.of_block(1_999, 1).final == {3: 1_999.0}
    assert all(len(kept) <= 256 for kept in log._times.values()) and log.height == 1_999
    log.forget(1_999, 1_999, ())
    assert not any(log._times.values())


WORDS = {error: f"{error}: {why}" for (kind, error), why in EXPECTED.items() if kind != "message"}


def test_errors_of_actors_have_their_words_and_lines(tmp_path: Path) -> None:
    (tmp_path / "failing.yaml").write_text(scenario_text(Scenario.model_validate(FAILING), None))
    with collecting() as collector:
        main(
            [
                "run",
                f"{tmp_path}/failing.yaml",
                "--seed=5",
                "--backend=sim",
                f"--out={tmp_path}/out",
                "--otlp",
                collector.url,
            ]
        )
    failed = [span for span in roots(collector.spans, "t") if span.error]
    assert {span.error for span in failed} == {*WORDS.values()}
    assert {span.attributes["error.type"] for span in failed} == WORDS.keys()


def test_what_was_exported_before_the_reasons_were_known_has_them_at_the_end(tmp_path: Path) -> None:
    with collecting() as collector:
        tracer = Tracer(collector.url, tmp_path, Scenario.model_validate(FAILING), "sim")
        books = keep_books(simulate(Scenario.model_validate(FAILING), 5, on_step=tracer.on_step))
        note_reasons(books)
        ways = tracer._begin(books.record)
        for block in books.chain:
            tracer._export.add(ways.add(block), tracer._began_epoch_ms)
        tracer.finish(books.record, books.chain, books.reasons)
    assert problems_of(collector.spans) == []
    assert {span.error for span in roots(collector.spans, "t")} - {""} == WORDS.keys()
    assert sorted(span.error for span in named(collector.spans, "reason")) == sorted(WORDS.values())


# --- the command ------------------------------------------------------------------------------------------------------


COMMAND_SCENARIO = """
name: traced
load: {users: [{workload: heartbeat, count: 2, interval_ms: 300}]}
stop: {height: 12, drain_blocks: 2}
success: {heights_compared: 2, transactions: 0, fires: 0}
"""


def traced_run(folder: Path, *options: str) -> int:
    path = folder / "traced.yaml"
    path.write_text(COMMAND_SCENARIO, encoding="utf-8")
    return main(["run", str(path), "--backend", "sim", "--out", str(folder / "out"), *options])


@pytest.mark.parametrize("status", [200, 500])
def test_a_collector_changes_no_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str], status: int) -> None:
    with collecting(Collector(status=status)) as collector:
        assert traced_run(tmp_path, "--otlp", collector.url.removesuffix("/v1/traces")) == 0
    said = capsys.readouterr()
    (line,) = [each for each in said.out.splitlines() if each.startswith("traces ")]
    assert said.err == "" and ("500 Internal Server Error" in line) == (status == 500)
    assert collector.asked.is_set() or "0 spans" in line


def test_a_url_that_is_none_is_refused_before_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert traced_run(tmp_path, "--otlp", "localhost:4318") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "'localhost:4318' is no URL of a collector: expected one such as http://localhost:4318" in line
    assert not (tmp_path / "out").exists()


def test_wrong_variables_are_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "much")
    with pytest.raises(BadInput, match="OTEL_TRACES_SAMPLER_ARG: expected a number from 0 to 1, got 'much'"):
        Tracer("http://127.0.0.1:1/v1/traces", tmp_path, SCENARIO, "sim")


def test_a_run_that_is_refused_for_them_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "sometimes")
    assert traced_run(tmp_path, "--otlp", "http://127.0.0.1:1") == 2
    assert "OTEL_TRACES_SAMPLER: 'sometimes' is not known; expected one of always_off" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_variable_that_switches_all_off_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    with collecting() as collector:
        assert traced_run(tmp_path, "--otlp", collector.url) == 0
    assert not collector.asked.is_set() and "traces " not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("module", "is_loaded"),
    [("cluster.commands.cli.main", False), ("cluster.commands.run.scenario_run", False), (otlp.__name__, True)],
)
def test_only_a_run_with_the_option_loads_opentelemetry(module: str, is_loaded: bool) -> None:
    code = f"import sys, {module}; print('opentelemetry' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout == f"{is_loaded}\n"
