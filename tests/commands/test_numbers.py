"""Numbers that users write: as text, each has one form everywhere; one of very many digits is refused in one line."""

from __future__ import annotations

import json
from argparse import ArgumentTypeError
from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.exceptions import HTTPException

from cluster.commands.console.options import parse_duration, parse_port, parse_seed
from cluster.commands.load.commands import _address
from cluster.commands.rerun.replay import _number, parse_time_us
from cluster.commands.run.commands import parse_fault
from cluster.commands.sweeps.commands import seed_range
from cluster.commands.sweeps.seed_pods import _count_from
from cluster.common.errors import BadInput
from cluster.common.files import read_json_object
from cluster.common.strict_json import Wrong, integer, parse
from cluster.live.driver.control_server import _payment
from cluster.live.host.http import _parse_cursor, _parse_integer
from cluster.live.web.addresses import PORTS_VARIABLE, ports_from
from cluster.record.genesis_file import from_json
from cluster.scenario.files import scenario_from
from cluster.scenario.overrides import parse_removal
from cluster.scenario.sections.validators import split_address
from kits.conform.t8n_input import read_genesis
from kits.market.dos.search.commands import parse_budget
from validator.primitives.params import ParameterError, parse_value
from validator.primitives.types import parse_decimal

NO_NUMBERS = ("007", "00", "+7", "-7", " 7", "7 ", "7\n", "٧", "²", "1_0", "0x7", "0b1", "7e", "", "9" * 5_000)


def in_scenario(text: str) -> object:
    return scenario_from({"name": "a", "chain": {"accounts": {"seed:a": text}}})


def in_trace(text: str) -> object:
    Path("rates.csv").write_text(f"{text},1\n", encoding="utf-8")
    return scenario_from({"name": "a", "load": {"phases": [{"kind": "trace", "from_ms": 0, "points": "rates.csv"}]}})


TAKERS: dict[str, Callable[[str], object]] = {
    "JSON": lambda text: integer(text, "n", 100),
    "parameter": lambda text: parse_value("MAX_TTL", text),
    "balance": in_scenario,
    "trace": in_trace,
    "seed": parse_seed,
    "port": parse_port,
    "duration": lambda text: parse_duration(f"{text}s"),
    "seeds": lambda text: seed_range(f"0:{text}"),
    "first seed": lambda text: seed_range(f"{text}:9"),
    "budget": parse_budget,
    "budget's zeros": lambda text: parse_budget(f"1e{text}"),
    "stepper's number": lambda text: _number(text, 1),
    "time": lambda text: parse_time_us(f"{text}ms"),
    "ports": lambda text: ports_from({PORTS_VARIABLE: f"{text}-9"}),
    "port of a host": lambda text: _address(1)(f"host:{text}"),
    "port of a peer": lambda text: split_address(f"host:{text}"),
    "pods": lambda text: _count_from({"STAMPEDE_SEED_PODS": text}),
    "address of a page": lambda text: _parse_integer("height", text, 100),
    "cursor": lambda text: _parse_cursor("from", text),
    "cursor's number": lambda text: _parse_cursor("from", f"1.{text}"),
    "faucet": lambda text: _payment(json.dumps({"to": "0x" + "ab" * 20, "amount": text}).encode()),
    "position": lambda text: parse_removal(f"faults[{text}]"),
}
TAKEN = frozenset({("stepper's number", ""), ("trace", " 7"), ("trace", "7 ")})
"""An empty text for a default, and white space around a place."""
ERRORS = (ArgumentTypeError, BadInput, HTTPException, ParameterError, ValueError, Wrong)


@pytest.mark.parametrize("taker", TAKERS)
def test_a_number_as_text_has_one_form(taker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    TAKERS[taker]("7")
    for text in NO_NUMBERS:
        if (taker, text) not in TAKEN:
            with pytest.raises(ERRORS) as caught:
                TAKERS[taker](text)
            problem = getattr(caught.value, "detail", None) or str(caught.value)
            assert "\n" not in problem and "set_int_max_str_digits" not in problem, text[:20]


def test_a_number_is_at_most_what_is_asked_for() -> None:
    assert [parse_decimal(text, 7) for text in ("0", "7", "8", "70")] == [0, 7, None, None]
    assert parse_decimal("9" * 40) == 10**40 - 1
    assert parse_decimal("1" + "0" * 40) is None


# --- very many digits -----------------------------------------------------------------------------------------------

LONG = "9" * 5_000


@pytest.mark.parametrize("sign", ["", "-"])
def test_a_json_number_of_very_many_digits_is_one_line(sign: str, tmp_path: Path) -> None:
    assert parse("9" * 640) == 10**640 - 1
    with pytest.raises(Wrong, match=r"^a\[0\]: a number of more than 640 characters$"):
        parse(f'{{"a": [{sign}{LONG}]}}')
    with pytest.raises(BadInput, match=r"^genesis: epochs: a number of more than 640 characters$"):
        from_json(f'{{"epochs": {sign}{LONG}}}')
    path = tmp_path / "file.json"
    path.write_text(f'{{"params": {{"MAX_TTL": {sign}{LONG}}}}}')
    with pytest.raises(BadInput) as caught:
        read_genesis(path)
    assert str(caught.value) == f"{path}: params.MAX_TTL: a number of more than 640 characters"
    with pytest.raises(BadInput) as caught:
        read_json_object(path)
    assert str(caught.value) == f"{path}: no JSON: a number has too many digits"
    path.write_text("[" * 100_000)
    with pytest.raises(BadInput) as caught:
        read_json_object(path)
    assert str(caught.value) == f"{path}: no JSON: nested too deeply"


def test_a_fault_with_a_number_of_very_many_digits_is_one_line() -> None:
    with pytest.raises(BadInput, match=r"^FAULT: no YAML: a number of more than 400 characters$"):
        parse_fault(f"{{kind: kill, at_ms: {LONG}}}")
    with pytest.raises(HTTPException) as caught:
        _payment(f'{{"to": "0x{"ab" * 20}", "amount": {LONG}}}'.encode())
    assert caught.value.detail.startswith("expected a JSON object with the fields to and amount")
