"""Every code block of the documents: run here, held by another test, or output that is named as such.

- *Commands* are given to the real command line's parser, and what files they name is in a fresh clone, or made by the
  command before. A synopsis (``[DIR]``) is parsed with everything in it. ``README.md`` is for pasting: no comments, no
  brackets, and all of it runs (:func:`test_the_readme_can_be_followed`).
- *Python* is executed as it stands, the test suite of ``docs/python.md`` by pytest on a live testnet.
- *Scenarios* are validated, a part of one together with what it needs besides.
- *Commands of other programs*, such as ``kubectl``, are on one page alone.

Files and folders of the project that a page quotes are there, and links lead to files and headings that are.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from cluster.commands.cli import main as cli
from cluster.common.errors import BadInput, ExitCode
from cluster.common.interrupts import SIGNALS
from cluster.scenario.files import change_scenario, load_scenario, scenario_from
from tests.hangs import HANGS_AFTER_S
from tests.validator.policies.own_policies import example
from validator.primitives.types import parse_address

ROOT: Final = Path(__file__).resolve().parents[1]
PAGES: Final = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
STAMPEDE: Final = ("stampede", ".venv/bin/stampede")
OTHER_PROGRAMS: Final = ("helm", "kind", "kubectl")
"""Their commands are in :data:`CLUSTERS` alone; nobody runs them here."""
CLUSTERS: Final = "docs/kubernetes.md"

HELD_ELSEWHERE: Final = {
    ("docs/actors.md", "python"): "tests/kits/actors/test_actor_page.py",
    ("docs/actors.md", "console"): "tests/kits/actors/test_actor_page.py",
    ("docs/architecture.md", "mermaid"): "tests/test_architecture.py",
    ("docs/client.md", "python"): "tests/test_client_guide.py",
    ("docs/exploration.md", "text"): "tests/kits/explore/test_commands.py",
    ("docs/load.md", "python"): "tests/loadgen/test_own_locust.py",
    ("docs/load.md", "console"): "tests/loadgen/test_own_locust.py",
    ("docs/load.md", "yaml"): "tests/cluster/scenario/test_own_workloads.py",
    ("docs/policies.md", "python"): "tests/validator/policies/own_policies.py",
    ("docs/peer-protocol.md", "text"): "tests/cluster/live/network/test_wire_vectors.py",
    ("docs/protocol.md", "text"): "tests/validator/test_golden_vectors.py",
    ("docs/python.md", "ini"): "tests/test_stampede_pytest.py",
    ("docs/reports.md", "yaml"): "tests/cluster/commands/compare/test_budget.py",
    ("docs/scenarios.md", "python"): "tests/cluster/checks/test_own_checks.py",
    ("docs/state.md", "python"): "tests/validator/state/naive_state.py",
}
"""Where blocks of a kind are compared with what the code does, or are a test's own program."""

OUTPUT: Final = {
    "docs/drills.md": ("drill    outage:", "✓ pass  drill_backlog", "validator-1 diverged at"),
    "docs/operations.md": ('"divergences": [{', "pass: Python 3.12.1", "runs/noisy, seed 1: fails"),
    "docs/policies.md": (
        "median' = (",
        "W = min(",
        "slice = LANE_TIMER",
        "weight' = (",
        "score = (bid",
        "payment = min(",
        "growth = e^",
    ),
    "docs/protocol.md": (
        "tip     = min(",
        "step = basefee",
        "max_fee  = min(",
        "tip       = min(",
        "needed = gas_limit",
    ),
    "docs/scenarios.md": ("scenarios/mine.yaml: load", "# yaml-language-server", "scenarios/base.yaml: stop.hight"),
}
"""Blocks that nobody types, by how they begin: what a command prints, and formulas."""

PROMETHEUS: Final = "scrape_configs:"
REQUEST: Final = "curl -X POST "

REGIONS: Final = {"links": {"regions": {"eu": ["validator-0", "validator-1"], "us": ["validator-2", "validator-3"]}}}
"""What a part of a scenario needs besides that names regions."""


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    text: str

    @property
    def ident(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def commands(self) -> list[list[str]]:
        """The words of each command, comments left out; empty where it is no block of commands."""
        lines = [line for line in self.text.replace("\\\n", " ").splitlines() if line.strip()]
        if not all(line.split()[0] in (*STAMPEDE, "make") for line in lines):
            return []
        return [shlex.split(line, comments=True) for line in lines]


def blocks_of(page: Path) -> Iterator[Block]:
    """Fenced blocks, and indented ones behind an empty line."""
    name, lines = str(page.relative_to(ROOT)), page.read_text(encoding="utf-8").splitlines()
    at = 0
    while at < len(lines):
        begin = at
        at += 1
        if lines[begin].startswith("```"):
            while not lines[at].startswith("```"):
                at += 1
            yield Block(name, begin + 1, lines[begin][3:], "\n".join(lines[begin + 1 : at]))
            at += 1
        elif lines[begin].startswith("    ") and not (begin and lines[begin - 1].strip()):
            while at < len(lines) and (lines[at].startswith("    ") or not lines[at].strip()):
                at += 1
            yield Block(name, begin + 1, "", "\n".join(line[4:] for line in lines[begin:at]).strip())


BLOCKS: Final = [block for page in PAGES for block in blocks_of(page)]
COMMANDS: Final = [block for block in BLOCKS if block.commands]
README: Final = [words for block in COMMANDS if block.page == "README.md" for words in block.commands]


def is_python(block: Block) -> bool:
    return block.language == "python" or block.text.startswith("from stampede import")


def is_scenario(block: Block) -> bool:
    return block.language == "yaml" or (
        not block.language and bool(re.match(r"# (in a scenario|\w+\.yaml)", block.text))
    )


def is_of_others(line: str) -> bool:
    return line.split()[:1] != [] and line.split()[0] in OTHER_PROGRAMS


SCENARIOS: Final = [
    block for block in BLOCKS if is_scenario(block) and (block.page, block.language) not in HELD_ELSEWHERE
]
PYTHON: Final = [block for block in BLOCKS if is_python(block) and (block.page, "python") not in HELD_ELSEWHERE]


def kinds_of(block: Block) -> list[str]:
    """What a block is; it is one thing."""
    return [
        kind
        for kind, holds in (
            ("held elsewhere", (block.page, block.language) in HELD_ELSEWHERE),
            ("output", block.text.startswith(OUTPUT.get(block.page, ()) or ("\0",))),
            ("commands", bool(block.commands)),
            ("python", block in PYTHON),
            ("scenario", block in SCENARIOS),
            ("prometheus", block.text.startswith(PROMETHEUS)),
            ("request", block.text.startswith(REQUEST)),
            ("other programs", block.page == CLUSTERS and all(is_of_others(line) for line in block.text.splitlines())),
        )
        if holds
    ]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.ident)
def test_every_block_is_known(block: Block) -> None:
    assert len(kinds_of(block)) == 1, f"{block.ident}: {kinds_of(block) or 'nobody runs it'}\n{block.text}"


def test_a_block_that_nobody_runs_is_noticed() -> None:
    for page, text in (
        (CLUSTERS, "docker ps"),
        (CLUSTERS, "kubectl get pods\nrm a"),
        ("README.md", "kubectl get pods"),
    ):
        assert kinds_of(Block(page, 1, "", text)) == []
    assert kinds_of(Block(CLUSTERS, 1, "", "helm repo update\n   kind get clusters")) == ["other programs"]


def test_what_is_said_of_blocks_is_so() -> None:
    for (page, language), holder in HELD_ELSEWHERE.items():
        assert any((block.page, block.language) == (page, language) for block in BLOCKS)
        assert (ROOT / holder).exists()
    for page, beginnings in OUTPUT.items():
        for beginning in beginnings:
            assert any(block.page == page and block.text.startswith(beginning) for block in BLOCKS), beginning


# --- commands ---------------------------------------------------------------------------------------------------------


def plain(words: list[str]) -> list[str]:
    """A synopsis with everything in it, numbers in the place of their names."""
    without = [re.sub(r"^\[|^([^\[]*)\]$", r"\1", word).removesuffix("]" if word[0] == "[" else "") for word in words]
    without = [word for word in without if word != "…"]
    return ["1" if word == "N" else word for word in without if word]


def check_command(words: list[str]) -> None:
    """Raises what the command line raises of it, without doing anything."""
    if words[0] == "make":
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        assert re.search(rf"^{words[1]}:", makefile, re.MULTILINE), f"there is no target {words[1]}"
        return
    options = cli._parser().parse_args(plain(words[1:]))
    assert callable(options.make)
    scenario = getattr(options, "scenario", None)
    if scenario is not None and (ROOT / scenario).exists():
        change_scenario(load_scenario(ROOT / scenario), getattr(options, "changes", ()), shlex.join(words))


@pytest.mark.parametrize("block", COMMANDS, ids=lambda block: block.ident)
def test_commands_are_those_of_the_command_line(block: Block) -> None:
    for words in block.commands:
        if ">" in words:
            words = words[: words.index(">")]
        check_command(words)


@pytest.mark.parametrize(
    "words",
    [
        ["stampede", "run", "--no-such"],
        ["stampede", "dril"],
        ["stampede", "run", "scenarios/smoke.yaml", "--set", "links.lost=1"],
        ["make", "coffee"],
    ],
)
def test_a_command_that_there_is_not_is_noticed(words: list[str]) -> None:
    with pytest.raises((AssertionError, BadInput, SystemExit)):
        check_command(words)


def in_a_fresh_clone() -> set[str]:
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    return {str(parent) for file in files for parent in (Path(file), *Path(file).parents)}


@pytest.mark.parametrize("block", COMMANDS, ids=lambda block: block.ident)
def test_what_commands_name_of_the_repository_is_there(block: Block) -> None:
    there = in_a_fresh_clone()
    for words in block.commands:
        for word in words[1:]:
            if re.match(r"(scenarios|actors|docs|benchmarks)/", word) and "*" not in word and "mine" not in word:
                assert word in there, f"{block.ident}: {word} is not in a fresh clone"


QUOTED_PATH: Final = re.compile(r"`(\.?\w[\w./-]*)`")
FOLDERS: Final = (
    ".ci",
    "actors",
    "benchmarks",
    "cluster",
    "consensus",
    "docs",
    "examples",
    "k8s",
    "loadgen",
    "scenarios",
    "spec",
    "tests",
    "validator",
)
ROOT_FILE: Final = re.compile(r"Makefile|pyproject\.toml|requirements(?:-dev)?\.lock|stampede\w*\.py|[A-Z]+\.md")


def missing_files(text: str, there: set[str]) -> list[str]:
    """Files and folders of the project that a page quotes and a fresh clone lacks. Capitals stand for names."""
    quoted = [path.rstrip("/") for path in QUOTED_PATH.findall(text) if not re.search(r"[A-Z]{4}.*/|/.*[A-Z]{4}", path)]
    ours = [path for path in quoted if path.partition("/")[0] in FOLDERS or ROOT_FILE.fullmatch(path)]
    return [path for path in ours if path not in there]


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_files_that_pages_name_are_there(page: Path) -> None:
    assert missing_files(page.read_text(encoding="utf-8"), in_a_fresh_clone()) == []


def test_a_file_that_is_not_there_is_noticed() -> None:
    there = {"docs/state.md", "cluster/live", "Makefile"}
    assert (
        missing_files("`docs/state.md`, `cluster/live/`, `Makefile`, `runs/latest`, `docs/NAME.md`, `a/b`", there) == []
    )
    assert missing_files("`docs/none.md`, `cluster/lively/`, `NONE.md`", there) == [
        "docs/none.md",
        "cluster/lively",
        "NONE.md",
    ]


LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
HEADING: Final = re.compile(r"^#+ (.*)$", re.MULTILINE)


def anchors_of(text: str) -> set[str]:
    """The anchors of a page: its own, and those of headings as GitHub makes them."""
    found: dict[str, int] = {}
    for heading in HEADING.findall(re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        found[anchor] = found.get(anchor, 0) + 1
    numbered = {anchor if not n else f"{anchor}-{n}" for anchor, times in found.items() for n in range(times)}
    return numbered | set(re.findall(r'<a id="([^"]+)"', text))


def broken_links(page: Path, text: str) -> list[str]:
    """Links of a page to files that are not there, and to headings that no page has."""
    broken = []
    for link in LINK.findall(text):
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        if "://" in link or (target.exists() and not anchor):
            continue
        if not target.exists() or anchor not in anchors_of(target.read_text(encoding="utf-8") if file else text):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page, page.read_text(encoding="utf-8")) == []


def test_a_link_that_leads_nowhere_is_noticed() -> None:
    text = (
        "# `One` two\n## The same\n## The same\n[a](#one-two) [b](#the-same-1) [c](README.md) [d](https://no.where/x#y)"
    )
    page = ROOT / "docs" / "README.md"
    assert broken_links(page, text) == []
    assert broken_links(page, f"{text} [e](#three) [f](none.md) [g](README.md#none)") == [
        "#three",
        "none.md",
        "README.md#none",
    ]


def test_the_readme_can_be_pasted() -> None:
    for block in COMMANDS:
        if block.page == "README.md":
            assert not re.search(r"\s#|…|\[[A-Z…]", block.text), f"{block.ident}: no shell takes that\n{block.text}"
            assert all(words[0] != "stampede" for words in block.commands), "it is not on the PATH"


def test_what_the_readme_names_of_runs_was_made_before() -> None:
    made = {"runs/latest"}  # by make run, the first of all
    assert README[0] == ["make", "run"]
    for words in README:
        outs = {words[at + 1] for at, word in enumerate(words) if word in ("--out", "--html", "--json")}
        named = {word.partition("=")[2] or word for word in words[1:] if re.match(r"(RUN=)?runs/", word)}
        assert named - outs <= made, f"{shlex.join(words)}: {sorted(named - outs - made)} does not exist"
        made |= outs


CHEAPER: Final = {"scenarios/smoke.yaml": ["--set", "stop.height=16", "--set", "stop.drain_blocks=2"]}
"""Simulated runs of a scenario end sooner on the walk; what they come to is not what is tested here."""
NOT_WALKED: Final = ("make", "up", "fuzz", "mutants", "shrink", "drill", "dos", "load", "k8s", "lab")
"""Parsed alone: whole builds, what runs until Ctrl-C, what takes minutes, and what needs a testnet or a cluster."""


@pytest.fixture
def fresh_clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder with what the commands need of the repository."""
    for name in ("scenarios", "actors"):
        shutil.copytree(ROOT / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield tmp_path
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.soak
def test_the_readme_can_be_followed(fresh_clone: Path) -> None:
    """Everything that is quick, in its order; a live run is simulated."""
    walked = []
    for _, command, *words in [["", *words] if words[0] == "make" else words for words in README]:
        if command in NOT_WALKED:
            continue
        arguments = [command, *words, *(CHEAPER.get(words[0], []) if command == "run" else [])]
        if command == "run" and "--backend" not in words:
            arguments += ["--backend", "sim"]
        walked.append(command)
        code = cli.main(arguments)
        assert code in (ExitCode.PASS, ExitCode.FAIL, ExitCode.INCONCLUSIVE), shlex.join(arguments)
        assert code != ExitCode.FAIL or "runs/broken" in words, shlex.join(arguments)
    assert {"run", "explain", "verify-run", "compare", "replay", "actor"} <= set(walked)
    assert (fresh_clone / "runs" / "compare.html").exists()


# --- Python and scenarios ---------------------------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.parametrize("block", [b for b in PYTHON if "pytest" not in b.text], ids=lambda block: block.ident)
def test_python_runs_as_it_stands(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    exec(compile(block.text, block.ident, "exec"), {})


@pytest.mark.slow
@pytest.mark.live
@pytest.mark.parametrize("block", [b for b in PYTHON if "pytest" in b.text], ids=lambda block: block.ident)
def test_the_test_suite_passes_as_it_stands(block: Block, tmp_path: Path) -> None:
    suite = tmp_path / "test_documented.py"
    suite.write_text(block.text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-c", "/dev/null", str(suite)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3_000:]


def test_requests_are_what_the_page_of_the_interface_says() -> None:
    (block,) = (block for block in BLOCKS if block.text.startswith(REQUEST))
    words = shlex.split(block.text.replace("\\\n", " "))
    _, path = words[words.index("POST") + 1].split("9464")
    body = json.loads(words[words.index("-d") + 1])
    assert f"`POST {path}`" in (ROOT / "docs/http.md").read_text(encoding="utf-8")
    assert set(body) == {"to", "amount"} and body["amount"] > 0
    parse_address(body["to"])


def test_there_is_python_of_each_kind() -> None:
    assert {block.page for block in PYTHON} == {"README.md", "docs/data.md", "docs/python.md"}
    assert sum("pytest" in block.text for block in PYTHON) == 1


@pytest.mark.parametrize("block", SCENARIOS, ids=lambda block: block.ident)
def test_scenarios_are_scenarios(block: Block) -> None:
    fields: dict[str, Any] = yaml.safe_load(block.text)
    extended = fields.pop("extends", None)
    assert extended is None or (ROOT / "scenarios" / extended).exists()
    if "region:" in block.text:
        fields = {**REGIONS, **fields}
    if "policy: ./" in block.text:
        fields["chain"]["policy"] = {"name": "own", "source": example("python")}
    assert scenario_from({"name": "documented", **fields}, block.ident).name


# --- the site ---------------------------------------------------------------------------------------------------------


def built_site(root: Path, target: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "mkdocs", "build", "--config-file", str(root / "mkdocs.yml")]
    return subprocess.run([*words, "--site-dir", str(target)], cwd=root, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_site_has_every_page_and_no_dead_link(tmp_path: Path) -> None:
    done = built_site(ROOT, tmp_path / "site")
    assert done.returncode == 0, done.stderr
    indices = {"README": "index"}
    for page in PAGES:
        path = page.relative_to(ROOT)
        assert (tmp_path / "site" / path.with_name(f"{indices.get(path.stem, path.stem)}.html")).is_file(), path
    assert "Stampede" in (tmp_path / "site" / "search" / "search_index.json").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("planted", ["[x](docs/none.md)", "[x](docs/lab.md#none)", "[x](none.py)"])
def test_a_dead_link_fails_the_site(tmp_path: Path, planted: str) -> None:
    root = tmp_path / "root"
    for path in ("mkdocs.yml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        root.mkdir(exist_ok=True)
        shutil.copy(ROOT / path, root / path)
    for folder in ("docs", "k8s", "kits", "spec", "scenarios"):
        shutil.copytree(ROOT / folder, root / folder)
    with (root / "README.md").open("a", encoding="utf-8") as page:
        page.write(f"\n{planted}\n")
    assert built_site(root, tmp_path / "site").returncode != 0
