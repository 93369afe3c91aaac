"""What the driver's pod runs if results go to a bucket: the driver's command, then the upload of the folder it wrote.

    python -m kits.kubernetes.uploading s3://BUCKET/PREFIX/NAME COMMAND …

The exit code is the command's, whatever became of the upload. Server and credentials are those of the environment, in
the variables that AWS names.
"""

from __future__ import annotations

import mimetypes
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import certifi
import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from cluster.common.files import write_atomically
from cluster.common.interrupts import Interrupts
from cluster.common.wording import counted, printable
from cluster.record.folder import RUNS_FOLDER, UPLOADED_FILE

MAX_RETRIES: Final = 10
"""How often a request is tried again, after pauses that grow to 15 s."""

DETAILS: Final = "\n\nDebug source:"
"""What an error of the library goes on with."""
MARKUP: Final = re.compile("<[^>]*>")
EXPECTED: Final = (
    "kubernetes.results, results_endpoint and results_secret to name a bucket, its server, and credentials that may"
    " write there"
)


def main(arguments: Sequence[str], root: Path = RUNS_FOLDER) -> int:
    """Run a command, and upload the folder that it made in ``root``. Returns the command's exit code."""
    prefix, *command = arguments
    before, address = _folders(root), f"{prefix}/{datetime.now(UTC):%Y%m%d-%H%M%S}"
    with Interrupts():  # a signal is for the command, which gets it, too
        code = subprocess.run(command, check=False).returncode
        made = _folders(root) - before
        if made:
            print(_uploaded(max(made, key=lambda folder: folder.stat().st_mtime), address), flush=True)
    return code if code >= 0 else 128 - code


def _folders(root: Path) -> set[Path]:
    return {path for path in root.iterdir() if path.is_dir() and not path.is_symlink()} if root.exists() else set()


def _uploaded(folder: Path, address: str) -> str:
    """Upload a folder. Returns the line that says how it went."""
    try:
        count = upload(folder, address)
        write_atomically(folder / UPLOADED_FILE, f"{address}\n")
    except (BaseError, OSError) as error:
        text = str(error).partition(DETAILS)[0].rpartition("Error performing ")[2]
        reason = " ".join(MARKUP.sub(" ", text).split())
        return printable(f"{address}: not uploaded: {reason}: expected {EXPECTED}")
    return f"{address}: uploaded, {counted(count, 'file')}"


def upload(folder: Path, address: str) -> int:
    """Upload all files of a folder below an address in a bucket. Returns their number.

    Raises :class:`obstore.exceptions.BaseError` and :class:`OSError`.
    """
    os.environ.setdefault("SSL_CERT_FILE", certifi.where())  # the image has no other certificates
    store = S3Store.from_url(address, client_options={"allow_http": True}, retry_config={"max_retries": MAX_RETRIES})
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]
    for path in files:
        kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        obstore.put(store, path.relative_to(folder).as_posix(), path, attributes={"Content-Type": kind})
    return len(files)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
