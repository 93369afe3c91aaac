"""The image's recipe and its bill of materials: pinned, hashed, not root, in agreement with locks, manifests, Makefile.

Each check has planted faults that it must find. An image that was built is looked at in ``test_cluster.py``.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from packaging.specifiers import SpecifierSet

from k8s.image import sbom, strip

ROOT = Path(__file__).resolve().parents[2]
K8S = ROOT / "k8s"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
USER = yaml.safe_load((K8S / "results.yaml").read_text())["spec"]["securityContext"]["runAsUser"]

Steps = list[tuple[str, str]]

# --- recipe ---------------------------------------------------------------------------------------------------------


def instructions(dockerfile: str) -> Steps:
    """The instructions of a Dockerfile with their arguments, continuation lines joined."""
    text = "\n".join(line for line in dockerfile.splitlines() if not line.lstrip().startswith("#"))
    joined = re.sub(r"\\\n\s*", "", text)
    return [(name.upper(), rest) for name, _, rest in (line.partition(" ") for line in joined.splitlines() if line)]


def dockerfile_problems(dockerfile: str) -> list[str]:
    """What is wrong with the image's recipe."""
    steps = instructions(dockerfile)
    checks: list[Callable[[Steps], Iterator[str]]] = [
        _base_problems,
        _user_problems,
        _install_problems,
        _final_problems,
    ]
    return [problem for check in checks for problem in check(steps)]


def base_of(steps: Steps) -> str:
    """The image that the build starts from if no argument names another."""
    return dict(rest.split("=", 1) for name, rest in steps if name == "ARG" and "=" in rest).get("BASE", "")


def _base_problems(steps: Steps) -> Iterator[str]:
    base = base_of(steps)
    images = [rest.partition(" AS ")[0] for name, rest in steps if name == "FROM"]
    if images != ["${BASE}", "scratch"]:
        yield f"starts from {', '.join(images)}, and not from BASE alone"
    pinned = re.fullmatch(r"python:(\d+\.\d+\.\d+)-slim-\w+", base)
    if not pinned:
        yield f"base image {base} is not pinned"
    elif not SpecifierSet(PROJECT["requires-python"]).contains(pinned[1]):
        yield f"Python {pinned[1]} is not {PROJECT['requires-python']}"


def _user_problems(steps: Steps) -> Iterator[str]:
    users = [rest for name, rest in steps if name == "USER"]
    if not users or not re.fullmatch(r"[1-9]\d*(:[1-9]\d*)?", users[-1]):
        yield "does not end as a numeric user that is not root"
    elif int(users[-1].split(":")[0]) != USER:
        yield "ends as another user than the pods run as"
    for command in (rest for name, rest in steps if name == "RUN" and "useradd" in rest):
        if "--system" in command or f"--uid {USER} " not in command:
            yield "useradd warns about the user's number, or gives another"


def _install_problems(steps: Steps) -> Iterator[str]:
    for command in (rest for name, rest in steps if name == "RUN" and "pip install" in rest):
        if "--require-hashes" not in command and not ("--no-index" in command and "--no-deps" in command):
            yield f"installs without hashes: {command}"
    for name, rest in steps:
        if name == "ADD":
            yield "ADD may fetch from the network"
        if name == "COPY" and not rest.startswith("--from="):
            *sources, _ = rest.split()
            yield from (f"copies {source}, which is not there" for source in sources if not (ROOT / source).exists())


def _final_problems(steps: Steps) -> Iterator[str]:
    """The last stage takes the laid out files alone, with kernels for each processor, and says what it is."""
    start = max(number for number, (name, _) in enumerate(steps) if name == "FROM")
    built, final = steps[:start], steps[start:]
    if [rest for name, rest in final if name == "COPY"] != ["--from=build /final /"]:
        yield "the final stage takes more than was laid out for it"
    if any("pip" in rest for _, rest in final):
        yield "the final stage installs"
    for stage in (built, final):
        if not any(name == "ENV" and "NUMBA_CPU_NAME=generic" in rest for name, rest in stage):
            yield "kernels are compiled for another processor than they are looked for"
    labels = " ".join(rest for name, rest in final if name == "LABEL")
    for label, value in {"version": f'"{PROJECT["version"]}"', "revision": "${COMMIT}", "base.name": "${BASE}"}.items():
        if f"org.opencontainers.image.{label}={value}" not in labels:
            yield f"label {label} is not {value}"


def test_the_image_is_pinned_hashed_and_not_root() -> None:
    assert dockerfile_problems((K8S / "Dockerfile").read_text()) == []


BASE = "ARG BASE=python:3.11.13-slim-bookworm"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (BASE, "ARG BASE=python:3.10.13-slim-bookworm", "is not >="),
        (BASE, "ARG BASE=python:3-slim-bookworm", "not pinned"),
        (BASE, "ARG BASE=python:latest", "not pinned"),
        ("FROM ${BASE} AS build", "FROM python:3.11 AS build", "not from BASE"),
        ("FROM scratch", "FROM ${BASE}", "not from BASE alone"),
        ("USER 10001:10001", "USER root", "not root"),
        ("USER 10001:10001", "", "not root"),
        ("USER 10001:10001", "USER 1000", "another user"),
        ("useradd --uid 10001", "useradd --system --uid 10001", "useradd warns"),
        (" --require-hashes", "", "without hashes"),
        ("--no-index ", "", "without hashes"),
        ("COPY scenarios scenarios", "COPY samples samples", "not there"),
        ("COPY scenarios scenarios", "ADD https://example.org/scenarios scenarios", "may fetch"),
        ("COPY --from=build /final /", "COPY --from=build / /", "more than was laid out"),
        ("WORKDIR /opt/stampede\nUSER", "RUN python -m pip install --require-hashes x\nUSER", "final stage installs"),
        ("    NUMBA_CPU_NAME=generic \\\n", "", "another processor"),
        (f'version="{PROJECT["version"]}"', 'version="0.0.9"', "label version"),
        ("revision=${COMMIT}", "revision=unknown", "label revision"),
    ],
)
def test_a_fault_in_the_image_is_found(old: str, new: str, expected: str) -> None:
    dockerfile = (K8S / "Dockerfile").read_text()
    assert old in dockerfile
    assert any(expected in problem for problem in dockerfile_problems(dockerfile.replace(old, new)))


def test_the_image_gets_nothing_but_what_is_copied_by_name() -> None:
    ignore = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert ignore[0] == "*"
    copied = {
        source.split("/")[0]
        for name, rest in instructions((K8S / "Dockerfile").read_text())
        if name == "COPY" and not rest.startswith("--from=")
        for source in rest.split()[:-1]
    }
    assert {line[1:] for line in ignore if line.startswith("!")} == copied


# --- base image -----------------------------------------------------------------------------------------------------


def pin_problems(makefile: str, dockerfile: str) -> list[str]:
    """Where ``make image`` does not start from the recipe's base by its digest."""
    found = re.search(r"^IMAGE_BASE \?= (\S+)$", makefile, re.MULTILINE)
    pinned = re.fullmatch(r"(\S+)@sha256:[0-9a-f]{64}", found[1]) if found else None
    problems = [] if pinned else ["the base has no digest"]
    if pinned and pinned[1] != base_of(instructions(dockerfile)):
        problems.append(f"{pinned[1]} is not the recipe's base")
    if "--build-arg BASE=$(IMAGE_BASE)" not in makefile:
        problems.append("the base is not handed to the build")
    return problems


def test_the_base_is_pinned_by_its_digest() -> None:
    assert pin_problems((ROOT / "Makefile").read_text(), (K8S / "Dockerfile").read_text()) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (r"(IMAGE_BASE \?= [^@]+)@\S+", r"\1"),
        (r"(IMAGE_BASE \?= \S+)\w", r"\1"),
        (r"IMAGE_BASE \?= python:3\.11\.13", "IMAGE_BASE ?= python:3.11.12"),
        (r"--build-arg BASE=\S+ ", ""),
    ],
)
def test_a_base_without_its_digest_is_found(old: str, new: str) -> None:
    changed, times = re.subn(old, new, (ROOT / "Makefile").read_text())
    assert times == 1
    assert pin_problems(changed, (K8S / "Dockerfile").read_text()) != []


# --- symbols --------------------------------------------------------------------------------------------------------


def test_a_stripped_library_still_loads(tmp_path: Path) -> None:
    library = Path(_raylet())
    copy = tmp_path / library.name
    shutil.copyfile(library, copy)
    whole = library.read_bytes()
    cut = strip.strip(copy)
    assert cut > 1_000_000
    kept = copy.read_bytes()
    assert len(kept) == len(whole) - cut
    assert kept[64:] == whole[64 : len(kept)]
    assert strip.strip(copy) == 0
    done = subprocess.run([sys.executable, "-c", LOAD, copy], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "loaded\n")
    # Planted: one page more is cut.
    copy.write_bytes(kept[:-4_096])
    done = subprocess.run([sys.executable, "-c", LOAD, copy], capture_output=True, text=True, check=False)
    assert done.returncode != 0


LOAD = "import ctypes, sys; ctypes.CDLL(sys.argv[1]); print('loaded')"


def _raylet() -> str:
    """Ray's library, which has symbols."""
    spec = find_spec("ray._raylet")
    assert spec is not None and spec.origin is not None
    return spec.origin


@pytest.mark.parametrize("content", [b"", b"#!/bin/sh\n", strip.MAGIC, b"\x7fELF\x01\x01" + bytes(100)])
def test_other_files_stay_as_they_are(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert strip.strip(path) == 0
    assert path.read_bytes() == content


# --- bill of materials ----------------------------------------------------------------------------------------------


def test_a_lock_is_read_as_the_installer_reads_it() -> None:
    """An environment may have more: somebody's own tools."""
    wanted = sbom.locked((ROOT / "requirements-dev.lock").read_text())
    versions = {sbom.canonical(each.metadata["Name"]): each.version for each in distributions()}
    assert list(sbom.differences({name: versions[name] for name in versions.keys() & wanted.keys()}, wanted)) == []
    assert len(wanted) > 50


@pytest.mark.parametrize(
    ("lock", "expected"),
    [
        ("a==1\nb==2\nc==3\n", "c: not installed, and 3 in the lock"),
        ("a==1\nb==3\n", "b: 2, and 3 in the lock"),
        ("a==1\nb==3 ; python_version < '3.12'\nb==4 ; python_version >= '3.12'\n", "b: 2, and 3 or 4 in the lock"),
        ("a==1\n", "b: 2, and not in the lock"),
        ("a==1\nb==3 ; python_version < '3'\n", "b: 2, and 3 in the lock"),
    ],
)
def test_another_installation_than_the_locks_is_found(lock: str, expected: str) -> None:
    assert list(sbom.differences({"a": "1", "b": "2"}, sbom.locked(lock))) == [expected]


def test_what_is_for_another_platform_may_be_missing() -> None:
    lock = "a==1\nB_c==2 ; sys_platform == 'win32' \\\n    --hash=sha256:00\n"
    assert list(sbom.differences({"a": "1"}, sbom.locked(lock))) == []
    assert sbom.locked(lock)["b-c"].versions == ["2"]


def test_what_installs_is_in_no_image() -> None:
    assert list(sbom.differences({"a": "1"}, sbom.locked("a==1\nsetuptools==80\n"))) == []
    assert list(sbom.differences({"a": "1", "pip": "25"}, sbom.locked("a==1\n"))) == ["pip: 25, and not in the lock"]


def test_the_bill_names_each_component_with_its_licence() -> None:
    numpy = next(each for each in distributions() if each.metadata["Name"] == "numpy")
    debian = sbom.debian_component(
        "Package: libc6\nArchitecture: amd64\nVersion: 1:2.36-9+deb12u13\nDescription: C\n x\n"
    )
    bill = sbom.document([sbom.python_component(numpy), debian], "1.2.3")
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["version"] == "1.2.3"
    assert [(each["name"], each["version"]) for each in bill["components"]] == [
        ("libc6", "1:2.36-9+deb12u13"),
        ("numpy", numpy.version),
    ]
    assert bill["components"][0]["purl"] == "pkg:deb/debian/libc6@1%3A2.36-9%2Bdeb12u13?arch=amd64"
    assert bill["components"][1]["licenses"]
    assert len({each["bom-ref"] for each in bill["components"]}) == 2


def test_a_bill_is_refused_if_the_lock_is_anothers(tmp_path: Path) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text("numpy==0.0.1 \\\n    --hash=sha256:00\n")
    command = [sys.executable, "-m", "k8s.image.sbom", str(lock)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.search(r"^sbom: numpy: \S+, and 0\.0\.1 in the lock$", done.stderr, re.MULTILINE)


def test_the_bill_of_an_installation_is_one_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = tmp_path / "requirements.lock"
    everything = {sbom.canonical(each.metadata["Name"]): each.version for each in distributions()}
    lock.write_text("".join(f"{name}=={version}\n" for name, version in everything.items() if name != "stampede"))
    monkeypatch.setattr(sys, "argv", ["sbom", str(lock)])
    assert sbom.main() == 0
    bill = json.loads(capsys.readouterr().out)
    assert {each["name"] for each in bill["components"]} == (everything.keys() - {"stampede"}) | {"python"}
