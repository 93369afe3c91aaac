"""Locks pin every dependency by hash, and ``docs/dependencies.md`` has a row for each."""

from __future__ import annotations

import re
from importlib.metadata import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.repository.dependencies import declared
from tests.repository.sources import text_files

LOCKS = {"requirements.lock": "build", "requirements-dev.lock": "dev", "k8s/requirements.lock": "image"}
"""Each lock and the dependency group that it holds besides the project's own dependencies."""

HASH = "--hash=sha256:" + "0" * 64

LICENCE_WORDS = {
    "Apache Software License": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache": "Apache-2.0",
    "Python Software Foundation License": "PSF-2.0",
}


def lock_entries(lock: str) -> list[list[str]]:
    """A lock's entries: the requirement, then its options."""
    joined = re.sub(r"\\\n\s*", "", re.sub(r"^\s*#.*\n", "", lock, flags=re.MULTILINE))
    return [re.split(r"\s+(?=--)", line.strip()) for line in joined.splitlines() if line.strip()]


def pinned(lock: str) -> dict[str, set[str]]:
    """The versions that a lock pins, by package; more than one where Python's version decides."""
    versions: dict[str, set[str]] = {}
    for entry, *_ in lock_entries(lock):
        requirement = Requirement(entry)
        versions.setdefault(canonicalize_name(requirement.name), set()).update(s.version for s in requirement.specifier)
    return versions


def lock_problems(lock: str, wanted: list[Requirement]) -> list[str]:
    """What a lock does not pin, does not hash, or does not hold."""
    problems = []
    for entry, *options in lock_entries(lock):
        if not re.match(r"[\w.-]+==[\w.!+]+(\s*;|$)", entry):
            problems.append(f"{entry}: not pinned to a version")
        if not options or not all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", option) for option in options):
            problems.append(f"{entry}: without hashes")
    if problems:
        return problems
    versions = pinned(lock)
    for requirement in wanted:
        held = versions.get(canonicalize_name(requirement.name), set())
        if not held or not all(requirement.specifier.contains(version) for version in held):
            problems.append(f"{requirement}: the lock holds {', '.join(sorted(held)) or 'none'}")
    return problems


@pytest.mark.parametrize(("lock", "group"), LOCKS.items())
def test_lock_pins_hashes_and_holds_everything(lock: str, group: str) -> None:
    assert lock_problems(text_files()[lock], [*declared(), *declared(group)]) == []


@pytest.mark.parametrize(
    "lock",
    [
        "",
        f"a>=1.0 \\\n    {HASH}\n",
        f"a==1.* \\\n    {HASH}\n",
        f"a @ https://example.org/a.whl \\\n    {HASH}\n",
        "a==1.5\n",
        "a==1.5 \\\n    --hash=md5:00\n",
        f"a==0.9 \\\n    {HASH}\n",
        f"b==1.5 \\\n    {HASH}\n    # via a\n",
        f"a==1.5 ; python_version < '3.12' \\\n    {HASH}\na==0.9 ; python_version >= '3.12' \\\n    {HASH}\n",
        f"--editable . \na==1.5 \\\n    {HASH}\n",
    ],
)
def test_a_fault_in_a_lock_is_found(lock: str) -> None:
    assert lock_problems(lock, [Requirement("a>=1.0")]) != []


def test_a_right_lock_passes() -> None:
    lock = f"a==1.5 ; python_version < '3.12' \\\n    {HASH} \\\n    {HASH}\n    # via b\na==1.6 \\\n    {HASH}\n"
    assert lock_problems(lock, [Requirement("A>=1.0")]) == []


def test_all_locks_pin_the_same_versions() -> None:
    main, *others = (pinned(text_files()[lock]) for lock in LOCKS)
    for other in others:
        assert {name: (main[name], other.get(name)) for name in main if main[name] != other.get(name)} == {}


# --- development tools -----------------------------------------------------------------------------------------------


def development_only(lock: str) -> set[str]:
    """Packages of the group ``dev`` that a lock holds though no other package needs them, by its comments (``via``)."""
    alone = r"^([\w.-]+)==[^#]*# via stampede \(pyproject\.toml:dev\)$"
    return set(re.findall(alone, lock, flags=re.MULTILINE))


def test_a_run_installs_no_development_tools() -> None:
    assert development_only(text_files()["requirements.lock"]) == set()
    assert {"mypy", "ruff", "hypothesis"} <= development_only(text_files()["requirements-dev.lock"])


# --- the page of dependencies ----------------------------------------------------------------------------------------


def documented(page: str) -> dict[str, list[str]]:
    """The rows of the dependency page's tables by package: version, licence, …"""
    rows = (line.strip().strip("|").split("|") for line in page.splitlines() if line.startswith("| `"))
    return {canonicalize_name(name.strip(" `")): [cell.strip() for cell in cells] for name, *cells in rows}


def dependency_page_problems(page: str, wanted: list[Requirement], versions: dict[str, set[str]]) -> list[str]:
    """Which dependency has no row on the page, or one with the wrong version, or without licence or reason."""
    rows = documented(page)
    problems = [f"{name}: is no dependency" for name in rows.keys() - {canonicalize_name(each.name) for each in wanted}]
    for name in (canonicalize_name(each.name) for each in wanted):
        cells = rows.get(name)
        if cells is None:
            problems.append(f"{name}: no row")
        elif set(re.split(r"[,\s]+", cells[0])) != versions[name]:
            problems.append(f"{name}: version {cells[0]}, the lock holds {', '.join(sorted(versions[name]))}")
        elif not all(cells):
            problems.append(f"{name}: a cell is empty")
    return problems


def all_declared() -> list[Requirement]:
    return [*declared(), *declared("dev"), *declared("image")]


def test_every_dependency_is_documented() -> None:
    versions = pinned(text_files()["requirements-dev.lock"])
    assert dependency_page_problems(text_files()["docs/dependencies.md"], all_declared(), versions) == []


@pytest.mark.parametrize(
    "page",
    ["", "| `a` | 1.4 | MIT | why |", "| `a` | 1.5 |  | why |", "| `a` | 1.5 | MIT | why |\n| `b` | 1 | MIT | why |"],
)
def test_a_gap_in_the_dependency_page_is_found(page: str) -> None:
    assert dependency_page_problems(page, [Requirement("a")], {"a": {"1.5"}}) != []


def stated_licence(package: str) -> str:
    """What an installed package says of its licence."""
    about = metadata(package)
    stated = (about.get_all("License-Expression") or about.get_all("License") or [""])[0]
    if not stated or "\n" in stated:  # a whole text
        classifiers = about.get_all("Classifier") or []
        stated = next(each.rpartition(" :: ")[2] for each in classifiers if each.startswith("License ::"))
    stated = stated.removesuffix(" License") if stated.startswith(("BSD", "MIT")) else stated
    return LICENCE_WORDS.get(stated, stated)


def test_documented_licences_are_those_that_the_packages_state() -> None:
    rows = documented(text_files()["docs/dependencies.md"])
    stated = {canonicalize_name(each.name): stated_licence(each.name) for each in all_declared()}
    wrong = {
        name: (rows[name][1], licence) for name, licence in stated.items() if not rows[name][1].startswith(licence)
    }
    assert wrong == {}
