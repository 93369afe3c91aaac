"""Malformed input of the conformance tool: exit 2, one line that names the file and the place, no output, no traceback.

The corpus in `tests/vectors/t8n/malformed/` holds what must be refused, and where. Mutations of sound input may also
happen to be sound; then there is an output.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster.commands.cli import main as cli
from cluster.common import strict_json as json_input
from kits.conform.cases.names import ACTORS, USERS
from kits.conform.cases.odd_scripts import BAD_SCRIPTS
from tests.kits.conform.specification.made import crowded_case

CORPUS = Path(__file__).parents[3] / "vectors" / "t8n" / "malformed"
GROUPS = ["genesis", "parameters", "blocks", "transactions", "text"]
SOUND = json.loads((CORPUS / "sound.json").read_text(encoding="utf-8"))


def load(group: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads((CORPUS / f"{group}.json").read_text(encoding="utf-8"))
    return listed


def text_of(entry: dict[str, Any]) -> str:
    """The file that an entry describes: a change of the sound one, a document, or its very text."""
    if "text" in entry:
        text = entry["text"]
        return text if isinstance(text, str) else "".join(part * times for part, times in text)
    if "replace" in entry:
        return json.dumps(SOUND["genesis"] | entry["replace"])
    if "transaction" in entry:
        return json.dumps([SOUND["blocks"][0] | {"txs": [entry["transaction"]]}])
    return json.dumps(entry["document"])


class Bench:
    """The two input files and the tool."""

    def __init__(self, folder: Path) -> None:
        self.paths = {name: folder / f"{name}.json" for name in ("genesis", "blocks", "out")}

    def run(self, texts: dict[str, str]) -> int:
        for name, text in texts.items():
            self.paths[name].write_bytes(text.encode("utf-8", "surrogatepass"))
        self.paths["out"].unlink(missing_ok=True)
        return cli.main(["t8n", *(item for name, path in self.paths.items() for item in (f"--{name}", str(path)))])


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def assert_refused(bench: Bench, shown: Any, file: str, place: str) -> None:
    """One printable line on standard error that names the file and the place, nothing else anywhere."""
    assert shown.out == ""
    assert shown.err.endswith("\n") and shown.err[:-1].isprintable(), repr(shown.err)
    assert len(shown.err.splitlines()) == 1
    head = f"stampede: {bench.paths[file]}: "
    assert shown.err.startswith(head), shown.err
    assert place in shown.err[len(head) :], shown.err
    assert not bench.paths["out"].exists()


@pytest.mark.parametrize("group", [GROUPS[0], *(pytest.param(group, marks=pytest.mark.slow) for group in GROUPS[1:])])
def test_the_corpus_is_refused(bench: Bench, capsys: pytest.CaptureFixture[str], group: str) -> None:
    sound = {"genesis": json.dumps(SOUND["genesis"]), "blocks": json.dumps(SOUND["blocks"])}
    for entry in load(group):
        code = bench.run(sound | {entry["file"]: text_of(entry)})
        assert code == 2, entry["name"]
        assert_refused(bench, capsys.readouterr(), entry["file"], entry["path"])


def test_what_the_corpus_changes_is_sound(bench: Bench) -> None:
    assert bench.run({name: json.dumps(SOUND[name]) for name in ("genesis", "blocks")}) == 0
    output = json.loads(bench.paths["out"].read_text(encoding="utf-8"))
    assert [tx["status"] for block in output["blocks"] for tx in block["txs"]] == ["ok"]


def test_what_is_no_text_is_refused(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.run({name: json.dumps(SOUND[name]) for name in ("genesis", "blocks")})
    arguments = ["t8n", *(item for name, path in bench.paths.items() for item in (f"--{name}", str(path)))]
    bench.paths["out"].unlink()
    for data in (b"\xff\xfe[\x00]\x00", b'[{"proposer": "\xff"}]', b"\xed\xa0\x80"):
        bench.paths["blocks"].write_bytes(data)
        assert cli.main(arguments) == 2
        assert_refused(bench, capsys.readouterr(), "blocks", "cannot be read")


def test_files_that_are_not_there_and_outputs_that_cannot_be(
    bench: Bench, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    bench.run({name: json.dumps(SOUND[name]) for name in ("genesis", "blocks")})
    paths = {**bench.paths, "out": tmp_path / "nowhere" / "out.json"}
    for name, path in (("out", paths["out"]), ("out", tmp_path), ("genesis", tmp_path), ("blocks", tmp_path / "none")):
        chosen = {**bench.paths, name: path}
        assert cli.main(["t8n", *(item for key, at in chosen.items() for item in (f"--{key}", str(at)))]) == 2
        shown = capsys.readouterr()
        assert len(shown.err.splitlines()) == 1 and str(path) in shown.err
    assert {path.name for path in tmp_path.iterdir()} == {"genesis.json", "blocks.json", "out.json"}


@pytest.mark.slow
def test_scripts_that_json_itself_forbids_are_refused_as_lists_and_revert_as_texts(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    """A text payload is only text to the tool: what is wrong in it is the actor's business."""
    transaction = SOUND["blocks"][0]["txs"][0]
    for script in BAD_SCRIPTS:
        text = json.dumps([SOUND["blocks"][0] | {"txs": [transaction | {"payload": script}]}])
        assert bench.run({"genesis": json.dumps(SOUND["genesis"]), "blocks": text}) == 0, script
        output = json.loads(bench.paths["out"].read_text(encoding="utf-8"))
        assert output["blocks"][0]["txs"][0]["error"] == "BadScript", script
    assert capsys.readouterr().err == ""


# --- unknown fields ---------------------------------------------------------------------------------------------------

COMMON = {key: given for key, given in SOUND["blocks"][0]["txs"][0].items() if key not in ("to", "handler", "payload")}
EVERY_LEVEL: dict[str, Any] = {
    "genesis": SOUND["genesis"] | {"runners": []},
    "blocks": [
        SOUND["blocks"][0],
        {"proposer": USERS[0], "empty": 1},
        {
            "proposer": USERS[0],
            "txs": [
                {**SOUND["blocks"][0]["txs"][0], "payload": {"hex": "5b5d"}, "value": 1, "timer_allowance": 1},
                COMMON | {"kind": "deploy", "code": "builtin:script"},
                *(
                    COMMON | {"kind": "system", "opcode": opcode, "args": args}
                    for opcode, args in (
                        (48, {"timer_id": "00" * 32}),
                        (49, {"config": {"MAX_TTL": 5}}),
                        (50, {"timer_id": "00" * 32, "new_expires_at": 9}),
                    )
                ),
            ],
        },
    ],
}
"""Every kind of object that there is."""
NAMED_BY_THEIR_KEYS = ("accounts", "actors", "params", "config")
"""Objects whose keys are names of their own: addresses and parameters."""


def objects(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of the objects that have fields."""
    found = [place for place in places(value) if isinstance(at(value, place), dict)]
    return [path + place for place in found if not place or place[-1] not in NAMED_BY_THEIR_KEYS]


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def accepted_with_one_field_more(bench: Bench) -> list[tuple[str, tuple[Any, ...]]]:
    """Where an unknown field is not refused."""
    sound = {name: json.dumps(document) for name, document in EVERY_LEVEL.items()}
    assert bench.run(sound) == 0
    found = []
    for file, document in EVERY_LEVEL.items():
        for path in objects(document):
            copy = json.loads(json.dumps(document))
            at(copy, path)["unknown"] = 1
            if bench.run(sound | {file: json.dumps(copy)}) != 2:
                found.append((file, path))
    return found


def test_an_unknown_field_is_refused_at_every_level(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert accepted_with_one_field_more(bench) == []
    refusals = capsys.readouterr().err.splitlines()
    assert len(refusals) == sum(len(objects(document)) for document in EVERY_LEVEL.values()) == 18
    assert all("unknown field 'unknown'" in line for line in refusals)


def test_an_argument_that_is_passed_over_is_found(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of the check: arguments of instructions may hold anything."""
    mapping = json_input.mapping

    def lenient(value: Any, path: str, allowed: Any, needed: Any) -> dict[str, Any]:
        return mapping(value, path, {*allowed, "unknown"} if path.endswith(".args") else allowed, needed)

    monkeypatch.setattr(json_input, "mapping", lenient)
    assert [path[-1] for _, path in accepted_with_one_field_more(bench)] == ["args"] * 3


# --- mutations --------------------------------------------------------------------------------------------------------

ODD_VALUES = st.one_of(
    st.sampled_from(
        [None, True, False, 0, 1, -1, 2**63, 2**64, 2**96, 2**128, 10**60, "", "0", "-1", "12", "1e9", "\u2028", "a\nb"]
    ),
    st.sampled_from([1.5, -0.0, 1e300, [], {}, [[]], [None], {"": None}, {"hex": "0"}, {"hex": "5b5d"}, "\ud800"]),
    st.sampled_from(
        [*USERS, *ACTORS, USERS[0].upper(), "0x" + "00" * 20, "0x" + "00" * 19 + "09", "0x12", "builtin:x"]
    ),
    st.integers(-(2**130), 2**130),
    st.text(max_size=5),
)
BASES = [crowded_case(seed, most_blocks=4) for seed in range(12)]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every path into a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in inner for place in places(item, (*path, key)))]


def mutate(value: Any, path: tuple[Any, ...], change: str, odd: Any) -> Any:
    """The value with one place of it replaced, removed, doubled or renamed."""
    if not path:
        return odd
    key, rest = path[0], path[1:]
    copy = value.copy()
    if rest or change == "replace":
        copy[key] = mutate(value[key], rest, change, odd)
    elif change == "remove":
        del copy[key]
    elif isinstance(value, list):
        copy.insert(key, value[key] if change == "double" else odd)
    else:
        copy[odd if isinstance(odd, str) else str(key).upper()] = value[key]
    return copy


def assert_output_or_refusal(bench: Bench, capsys: pytest.CaptureFixture[str], texts: dict[str, str]) -> None:
    code = bench.run(texts)
    shown = capsys.readouterr()
    if code == 0:
        assert bench.paths["out"].exists() and shown.err == ""
    else:
        assert code == 2
        blamed = "genesis" if str(bench.paths["genesis"]) in shown.err else "blocks"
        assert_refused(bench, shown, blamed, "")


@pytest.mark.slow
@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    base=st.sampled_from(BASES),
    file=st.sampled_from(["genesis", "blocks"]),
    odd=ODD_VALUES,
    change=st.sampled_from(["replace", "replace", "remove", "double", "rename"]),
    data=st.data(),
)
def test_mutations_never_end_in_a_traceback(
    bench: Bench,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    base: tuple[Any, Any],
    file: str,
    odd: Any,
    change: str,
    data: st.DataObject,
) -> None:
    monkeypatch.setattr("kits.conform.t8n_input.MAX_BLOCKS", 1_000)  # more empty ones would be right, and take minutes
    documents = dict(zip(("genesis", "blocks"), base, strict=True))
    path = data.draw(st.sampled_from(places(documents[file])))
    documents[file] = mutate(documents[file], path, change, odd)
    assert_output_or_refusal(bench, capsys, {name: json.dumps(document) for name, document in documents.items()})


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(base=st.sampled_from(BASES), file=st.sampled_from(["genesis", "blocks"]), data=st.data())
def test_damaged_texts_never_end_in_a_traceback(
    bench: Bench, capsys: pytest.CaptureFixture[str], base: tuple[Any, Any], file: str, data: st.DataObject
) -> None:
    texts = {name: json.dumps(document) for name, document in zip(("genesis", "blocks"), base, strict=True)}
    text = texts[file]
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 8)))
    inserted = data.draw(
        st.sampled_from(["", "", '"', "{", "}", "[", "]", ",", ":", "\\", "\\u", "-", ".5", "e1", "\x00", "\ud800"])
    )
    assert_output_or_refusal(bench, capsys, texts | {file: text[:start] + inserted + text[end:]})
