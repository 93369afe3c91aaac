"""The upload of results, against an S3 server on the loopback."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from pathlib import Path

import certifi
import obstore
import pytest
from localbucket import S3Error, S3Handler
from obstore.store import S3Store

from kits.kubernetes import uploading

PREFIX = "s3://results/stampede/smoke"
PART_BYTES = 5 * 2**20
"""Size from which a file is uploaded in parts."""
WRITES = f"""
import sys
from pathlib import Path
folder = Path("runs/smoke")
(folder / "logs/ray").mkdir(parents=True)
(folder / "report.html").write_text("<p>report</p>")
(folder / "logs/ray/a b.log").write_bytes(b"x" * {PART_BYTES + 1})
Path("runs/latest").symlink_to("smoke")
sys.exit(int(sys.argv[1]))
"""
"""Stands in for a driver: it leaves a folder and ends with the exit code that it is given."""


class Handler(S3Handler):
    """An S3 server's requests, of one user."""

    def _dispatch(self, action: object) -> None:
        if "Credential=me/" in self.headers["Authorization"]:
            super()._dispatch(action)
        else:
            self._send_error(S3Error(HTTPStatus.FORBIDDEN, "InvalidAccessKeyId", "The key does not exist."))


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a bucket. The working directory has the folder of runs, with an earlier run."""
    found = tmp_path / "server" / "results"
    found.mkdir(parents=True)
    (tmp_path / "runs" / "earlier").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Handler, "data_root", found.parent, raising=False)
    monkeypatch.setattr(uploading, "MAX_RETRIES", 1)
    monkeypatch.setenv("SSL_CERT_FILE", "")  # restored at the end
    for name in ("SSL_CERT_FILE", "HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "me")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        yield found
        server.shutdown()
        thread.join()


def run(code: int = 0, prefix: str = PREFIX) -> int:
    return uploading.main([prefix, sys.executable, "-c", WRITES, str(code)])


@pytest.mark.parametrize("code", [0, 1, 3])
def test_a_folder_is_uploaded_whatever_the_verdict(bucket: Path, capsys: pytest.CaptureFixture[str], code: int) -> None:
    assert run(code) == code
    (folder,) = (bucket / "stampede" / "smoke").iterdir()
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    assert sorted(files) == ["logs/ray/a b.log", "report.html"]
    assert files["logs/ray/a b.log"].read_bytes() == b"x" * (PART_BYTES + 1)
    address = f"{PREFIX}/{folder.name}"
    assert capsys.readouterr().out == f"{address}: uploaded, 2 files\n"
    assert Path("runs/smoke/uploaded.txt").read_text() == f"{address}\n"
    store = S3Store.from_url(address, client_options={"allow_http": True})
    assert obstore.get(store, "report.html").attributes["Content-Type"] == "text/html"
    assert os.environ["SSL_CERT_FILE"] == certifi.where(), "the image has no other certificates"


@pytest.mark.parametrize(
    ("prefix", "variables", "reason"),
    [
        ("s3://no-results/smoke", {}, "NoSuchBucket"),
        (PREFIX, {"AWS_ACCESS_KEY_ID": "stranger"}, "InvalidAccessKeyId"),
        (PREFIX, {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "http://127.0.0.1:9/results"),
    ],
)
def test_an_upload_that_fails_is_one_line_and_the_exit_code_stays(
    bucket: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    prefix: str,
    variables: dict[str, str],
    reason: str,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert run(1, prefix) == 1
    printed = capsys.readouterr().out
    assert printed.startswith(f"{prefix}/") and ": not uploaded: " in printed and reason in printed
    assert printed.endswith(f": expected {uploading.EXPECTED}\n")
    assert printed.count("\n") == 1 and "Debug source" not in printed and "<" not in printed
    assert Path("runs/smoke/report.html").exists() and not Path("runs/smoke/uploaded.txt").exists()


def test_a_command_that_leaves_no_folder_uploads_nothing(bucket: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert uploading.main([PREFIX, sys.executable, "-c", "raise SystemExit(2)"]) == 2
    assert (capsys.readouterr().out, list(bucket.iterdir())) == ("", [])


def test_a_driver_that_is_killed_after_a_signal_to_both_leaves_its_folder_in_the_bucket(bucket: Path) -> None:
    signals = "import os, signal; os.kill(os.getppid(), signal.SIGINT); os.kill(os.getpid(), signal.SIGKILL)  # "
    command = [sys.executable, "-c", WRITES.replace("sys.exit(", signals), "0"]
    assert uploading.main([PREFIX, *command]) == 128 + signal.SIGKILL
    assert len(list((bucket / "stampede" / "smoke").iterdir())) == 1
