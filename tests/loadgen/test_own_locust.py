"""A Locust of the user's own, as ``docs/load.md`` describes it: with users and shapes beside ours, and workers."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from cluster.common.checkout import ROOT
from loadgen.runplan import Statistics
from loadgen.workloads import LoadPlan
from tests.hangs import HANGS_AFTER_S
from tests.loadgen.fake_validator import FakeChain, FakePages, ServerThread
from tests.loadgen.test_distribution import EVERYBODY, wait_for_everybody, worker_of
from tests.loadgen.test_run import USERS, LoadProcess, write_plan

PAGE = (ROOT / "docs" / "load.md").read_text(encoding="utf-8")
READERS = 2
SHAPE = """
from pathlib import Path
from locust import LoadTestShape

class Rest(LoadTestShape):
    def tick(self):
        return None if Path({over}).exists() else ({users}, 100)
"""


def block(language: str, heading: str) -> str:
    """The example of a section of the page."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    (found,) = re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)
    return found


def start(plan: Path, locustfile: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "locust", "--locustfile", str(locustfile), "--plan", str(plan), "--headless"]
    command += ["--only-summary", "--loglevel", "WARNING", "--exit-code-on-error", "0", "--stop-timeout", "5", *options]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("has_shape", [False, True], ids=["users", "shape"])
def test_users_and_shapes_of_ones_own(tmp_path: Path, has_shape: bool) -> None:
    chain = FakeChain()
    with ServerThread(FakePages(chain, 0)) as server:
        code = block("python", "Your own Locust").replace("http://127.0.0.1:9464", server.url)
        file = tmp_path / "own.py"
        over = tmp_path / "over"
        file.write_text(code + (SHAPE.format(users=EVERYBODY + READERS, over=repr(str(over))) if has_shape else ""))
        plan = write_plan(tmp_path, [server.url])
        users = [] if has_shape else ["--users", str(EVERYBODY + READERS), "--spawn-rate", "100"]
        locust = start(plan, file, *users)
        try:
            wait_for_everybody(chain)
            if has_shape:
                over.touch()
            else:
                locust.send_signal(signal.SIGTERM)
            output, _ = locust.communicate(timeout=HANGS_AFTER_S)
        finally:
            locust.kill()
    assert locust.returncode == 0, output
    assert re.search(r"^GET +/validators +[1-9]", output, re.MULTILINE), "the readers run, too"
    statistics = Statistics.model_validate_json((tmp_path / "stats.json.0").read_bytes())
    assert statistics.transactions_sent == len(chain.taken) and statistics.failures == 0
    assert set(statistics.sends.workloads) == {"heartbeat", "flood", "transfer"}


@pytest.mark.slow
def test_a_worker_joins_with_the_command_of_the_page(tmp_path: Path) -> None:
    words = block("console", "Locust").split()
    assert words[:3] == ["locust", "--locustfile", "loadgen/locustfile.py"] and words[3:4] == ["--worker"]
    assert words[4::2] == ["--master-host", "--master-port"], "as worker_of() starts one"
    chain = FakeChain()
    with ServerThread(FakePages(chain, 0)) as server:
        plan = write_plan(tmp_path, [server.url])
        with LoadProcess(plan, "--listen", "127.0.0.1:0") as load, worker_of(plan, load) as worker:
            wait_for_everybody(chain)
            load.process.send_signal(signal.SIGTERM)
            assert load.wait() == 0, load.output
            assert worker.wait(HANGS_AFTER_S) == 0, "it ends with its master"
    assert json.loads((tmp_path / "stats.json").read_text())["transactions_sent"] == len(chain.taken)


# --- files that the plan has -----------------------------------------------------------------------------------------

# The fake chain makes a block at each look at /status: users who look there, too, would let others take it for stalled.
# It counts who asks for timers.
READ, WATCHED = b"\x01" * 32, b"\x02" * 32
OWN = f"""
from locust import FastHttpUser, HttpUser, constant, task

class Reader(HttpUser):
    wait_time = constant(0.1)

    def on_start(self):
        self.client.get("/validators", name="begun")

    @task
    def read(self):
        self.client.get("/timers/{READ.hex()}", name="read")

class Watcher(FastHttpUser):
    wait_time = constant(0.1)

    @task
    def read(self):
        self.client.get("/timers/{WATCHED.hex()}", name="watched")
"""
OWN_SHAPE = """
from pathlib import Path
from locust import LoadTestShape

class Rest(LoadTestShape):
    resets = 0

    def reset_time(self):
        super().reset_time()
        self.resets += 1

    def tick(self):
        if self.resets < 2:
            return None  # Locust resets it when it starts, and the load once more when that begins
        return None if {is_over} else ({users}, 100)
"""
ALL_ASKED = "all(self.runner.stats.get(name, 'GET').num_requests for name in ('read', 'watched'))"


def own_locust(*texts: str, **fields: Any) -> dict[str, Any]:
    files = [{"name": f"own{number}", "source": text} for number, text in enumerate(texts)]
    return {"processes": 1, "users": USERS, "locust": {"files": files, **fields}}


def wait_for_own_users(chain: FakeChain, users: int) -> None:
    """Wait until somebody of each class has come again, who has had the answer to the first request by then."""
    assert chain.wait_for_timers_read((READ, WATCHED), users // 2 + 1, HANGS_AFTER_S), chain.timers_read


def asked(load: LoadProcess, name: str) -> bool:
    """Whether Locust's summary has requests of this name that all went well."""
    return re.search(rf"^GET +{name} +[1-9]\d* +0\(", load.output.decode(), re.MULTILINE) is not None


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_the_files_of_a_plan_run_beside_its_users(tmp_path: Path, processes: int) -> None:
    chain = FakeChain()
    with ServerThread(FakePages(chain, 0)) as server:
        plan = write_plan(tmp_path, [server.url], load=own_locust(OWN, users=4) | {"processes": processes})
        with LoadProcess(plan) as load:
            wait_for_everybody(chain)
            wait_for_own_users(chain, 4)
            load.process.send_signal(signal.SIGTERM)
            assert load.wait() == 0, load.output
            statistics = load.statistics()
    assert all(asked(load, name) for name in ("begun", "read", "watched")), load.output
    assert statistics.transactions_sent == len(chain.taken) and statistics.failures == 0
    assert set(statistics.sends.workloads) == {"heartbeat", "flood", "transfer"}


@pytest.mark.slow
def test_a_worker_from_elsewhere_has_the_files_from_its_master(tmp_path: Path) -> None:
    chain = FakeChain()
    with ServerThread(FakePages(chain, 0)) as server:
        plan = write_plan(tmp_path, [server.url], load=own_locust(OWN, users=2))
        with LoadProcess(plan, "--listen", "127.0.0.1:0") as load, worker_of(plan, load, "-") as worker:
            wait_for_everybody(chain)
            wait_for_own_users(chain, 2)
            load.process.send_signal(signal.SIGTERM)
            assert load.wait() == 0, load.output
            assert worker.wait(HANGS_AFTER_S) == 0
    assert asked(load, "read") and asked(load, "watched"), load.output


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_a_shape_of_a_plan_begins_with_the_load_and_ends_it(tmp_path: Path, processes: int) -> None:
    chain = FakeChain()
    with ServerThread(FakePages(chain, 0)) as server:
        over = tmp_path / "shape" / "over"
        over.parent.mkdir()
        shape = OWN_SHAPE.format(users=EVERYBODY + 2, is_over=f"Path({str(over)!r}).exists() and {ALL_ASKED}")
        own = own_locust(OWN, shape) | {"processes": processes}
        (tmp_path / "load").mkdir()
        with LoadProcess(write_plan(tmp_path / "load", [server.url], load=own)) as load:
            wait_for_everybody(chain)
            over.touch()
            assert load.wait() == 0, load.output
            statistics = load.statistics()
    assert asked(load, "read") and asked(load, "watched"), load.output
    assert len({transaction.sender for _, transaction in chain.taken}) == EVERYBODY
    assert statistics.transactions_sent == len(chain.taken) > 0


@pytest.mark.slow
def test_files_without_users_of_the_load_run_alone(tmp_path: Path) -> None:
    chain = FakeChain()
    shape = OWN_SHAPE.format(users=2, is_over=ALL_ASKED)
    with ServerThread(FakePages(chain, 0)) as server:
        own = own_locust(OWN, shape) | {"users": []}
        with LoadProcess(write_plan(tmp_path, [server.url], load=own)) as load:
            assert load.wait() == 0, load.output
    assert asked(load, "read") and asked(load, "watched") and not chain.taken, load.output


@pytest.mark.slow
def test_a_file_that_fails_ends_the_load_and_is_in_its_output(tmp_path: Path) -> None:
    with LoadProcess(write_plan(tmp_path, ["http://127.0.0.1:1"], load=own_locust("1 / 0"))) as load:
        assert load.wait() == 1
    assert b"own0.py" in load.output and b"ZeroDivisionError: division by zero" in load.output


FILES = [{"name": "readers", "source": "a = 1"}]


@pytest.mark.parametrize(
    ("locust", "line"),
    [
        ({"files": []}, "List should have at least 1 item after validation, not 0"),
        ({"files": FILES, "users": 0}, "Input should be greater than or equal to 1"),
        (["./own.py"], "Input should be a valid dictionary or instance of OwnLocustfile"),
        ([*FILES, *FILES], "files[1]: two files are named readers.py; expected different names"),
        ([{"name": "json", "source": "a"}], "files[0]: json.py would hide the module json; expected another name"),
        ([*FILES, {"name": "b", "source": "\n(1"}], "files[1]: file b.py, line 2: '(' was never closed"),
        ([{"name": "b", "source": "\0"}], "files[0]: file b.py: source code string cannot contain null bytes"),
        (
            [{"name": "a", "source": SHAPE}, {"name": "b", "source": "import a\nclass More(a.Rest):\n    pass"}],
            "files: expected one LoadTestShape at most, got Rest in a.py, More in b.py",
        ),
        (
            {"files": [{"name": "a", "source": SHAPE}], "users": 3},
            "users: the shape (Rest in a.py) says how many there are; expected none",
        ),
    ],
)
def test_files_that_are_no_locustfiles_are_one_line(locust: Any, line: str) -> None:
    with pytest.raises(ValidationError) as raised:
        LoadPlan.model_validate({"locust": locust})
    assert raised.value.errors()[0]["msg"].removeprefix("Value error, ") == line


def test_an_abstract_shape_is_for_others_to_extend() -> None:
    base = "from locust import LoadTestShape as Shape\nclass Base(Shape):\n    abstract = True\n"
    plan = LoadPlan.model_validate({"locust": [{"name": "a", "source": f"{base}class Mine(Base):\n    pass\n"}]})
    assert plan.locust is not None and plan.locust.user_count == 1
    assert not plan.is_empty and LoadPlan().is_empty
