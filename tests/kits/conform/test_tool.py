"""Programs under test: good ones, and each way to answer wrongly, which costs one line and not the sweep."""

from __future__ import annotations

import io
import json
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cluster.common.checkout import SAFE_PATH, SAFE_PATH_IS_OURS
from cluster.common.errors import BadInput
from kits.conform import tool as tools
from kits.conform.case import Case
from kits.conform.t8n import serve_t8n
from kits.conform.tool import FileTool, ServedTool, ToolCommand, ToolFailure
from tests.hangs import HANGS_AFTER_S

CASE = Case("family", 1, "", {}, [])
SERVED = {
    "good": "print(json.dumps({'blocks': [], 'final': {}}), flush=True)",
    "refuses": "print(json.dumps({'error': 'accounts: wrong'}), flush=True)",
    "garbage": 'print("hello", flush=True)',
    "a list": 'print("[]", flush=True)',
    "two lines": "sys.stdout.write('{}' + chr(10) + '{}' + chr(10)); sys.stdout.flush()",
    "crash": "sys.exit(3)",
    "traceback": "raise ValueError('no such rule')",
    "killed": "import os; os.kill(os.getpid(), 9)",
    "flood": "while True: sys.stdout.write('x' * 65536)",
    "hang": "sys.stdin.read()",
    "deep": "print('[' * 100_000, flush=True)",
}
EXPECTED = {
    "refuses": "refuses the input: accounts: wrong",
    "garbage": "its answer is no JSON: Expecting value: line 1 column 1 (char 0): 'hello",
    "a list": "its answer is no object: []",
    "two lines": "printed more than one line: {} {}",
    "crash": "ended with exit code 3",
    "traceback": "ended with exit code 1: ValueError: no such rule",
    "killed": "was ended by signal 9",
    "flood": "printed more than 0 MiB",
    "hang": "gave no answer within 1 s",
}


def test_a_tool_may_be_a_module_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(f"import json, sys\nfor line in sys.stdin:\n    {SERVED['good']}\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(SAFE_PATH, SAFE_PATH_IS_OURS)  # as the command line has it
    with closing(ServedTool([sys.executable, "-m", "mine"], HANGS_AFTER_S)) as tool:
        assert tool.answer(CASE) == {"blocks": [], "final": {}}


@pytest.mark.parametrize("how", SERVED)
def test_what_a_served_tool_does_wrong_is_one_line(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "MAX_ANSWER_BYTES", 300_000)
    script = tmp_path / "tool.py"
    script.write_text(f"import json, sys\nfor line in sys.stdin:\n    {SERVED[how]}\n", encoding="utf-8")
    limit = 1 if how == "hang" else HANGS_AFTER_S
    with closing(ServedTool([sys.executable, str(script)], limit)) as tool:
        for _ in range(2):  # the second case finds a tool again
            if how == "good":
                assert tool.answer(CASE) == {"blocks": [], "final": {}}
                continue
            with pytest.raises(ToolFailure) as failure:
                tool.answer(CASE)
            assert str(failure.value).startswith(EXPECTED.get(how, "its answer is no JSON")), how
            assert "\n" not in str(failure.value)
            if how == "hang":
                break


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("open(out, 'w').write(json.dumps({'blocks': [], 'final': {}}))", None),
        ("pass", "wrote no output file"),
        ("sys.exit(2)", "ended with exit code 2"),
        ("open(out, 'w').write('{')", "its answer is no JSON"),
        ("open(out, 'w').write('x' * 10**6)", "was ended by signal|ended with exit code 1|wrote more than"),
        ("print('x' * 10**6)", "printed more than 0 MiB"),
    ],
)
def test_what_a_tool_with_files_does_wrong_is_one_line(
    body: str, expected: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools, "MAX_ANSWER_BYTES", 300_000)
    monkeypatch.setattr(tools, "MAX_PRINTED_BYTES", 100_000)
    script = tmp_path / "tool.py"
    script.write_text(f"import json, sys\nout = sys.argv[-1]\n{body}\n", encoding="utf-8")
    tool = FileTool([sys.executable, str(script)], HANGS_AFTER_S)
    if expected is None:
        assert tool.answer(CASE) == {"blocks": [], "final": {}}
        return
    with pytest.raises(ToolFailure, match=expected):
        tool.answer(CASE)


@pytest.mark.parametrize("text", ["", "no-such-program-here", "python 'unclosed"])
def test_a_command_that_cannot_run_is_bad_input(text: str) -> None:
    with pytest.raises(BadInput, match="--tool"):
        ToolCommand(text, True, 30).words()


def serve(*lines: Any) -> list[dict[str, Any]]:
    requests = b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines)
    answers = io.StringIO()
    serve_t8n(io.BytesIO(requests), answers)
    return [json.loads(line) for line in answers.getvalue().splitlines()]


def test_serving_answers_each_line() -> None:
    block = {"proposer": "0x" + "11" * 20, "empty": 2}
    good = {"genesis": {}, "blocks": [block]}
    first, second = serve(good, b"\n", good)
    assert first == second
    assert [page["height"] for page in first["blocks"]] == [1, 2]


FAILING_POLICY = """\
from validator.policies.fifo import FifoPhase


class Mine(FifoPhase):
    def candidates(self):
        raise ValueError("no order")
"""


def test_a_users_policy_that_fails_ends_its_case_alone() -> None:
    block = {"proposer": "0x" + "11" * 20, "empty": 1}
    policy = {"name": "mine", "source": FAILING_POLICY}
    wrong, right = serve({"genesis": {"policy": policy}, "blocks": [block]}, {"genesis": {}, "blocks": [block]})
    assert list(wrong) == ["error"]
    assert "mine" in wrong["error"]
    assert len(right["blocks"]) == 1


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"{\n", "$: no JSON"),
        (b"\xff\n", "$: no UTF-8"),
        ({"genesis": {}}, "$: "),
        ({"genesis": {"policy": "x"}, "blocks": []}, "genesis: policy: 'x' is unknown"),
        ({"genesis": {}, "blocks": [{}]}, "blocks: [0]"),
    ],
)
def test_a_wrong_request_gets_an_error_and_the_next_one_an_answer(line: Any, error: str) -> None:
    wrong, right = serve(line, {"genesis": {}, "blocks": []})
    assert list(wrong) == ["error"]
    assert wrong["error"].startswith(error)
    assert right["blocks"] == []
