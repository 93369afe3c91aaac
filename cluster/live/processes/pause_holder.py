"""Holds a process still for as long as this program's standard input stays open, and lets it go on then.

Run as ``python pause_holder.py PID STARTED``; it writes a line once the process stands still, and exits with 1 where
there is no such process. It holds a process by its descriptor, so that a process id that was given away again is never
touched. Whoever runs it holds the other end of its input: when that one ends, in whatever way, the process goes on. It
imports nothing of ours, so that it starts in milliseconds and depends on nothing that a fault may have broken.
"""

import os
import signal
import sys
import time

POLL_S = 0.005
PATIENCE_S = 2.0
IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What a terminal sends to everybody must not end this one before those who hold its input."""


def stat(pid: int) -> list[str]:
    """The fields of a process' status line from its state on; empty where there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def main(pid: int, started: str) -> int:
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    try:
        process = os.pidfd_open(pid)
    except OSError:
        return 1
    if stat(pid)[19:20] != [started]:
        return 1
    try:
        signal.pidfd_send_signal(process, signal.SIGSTOP)
        deadline = time.monotonic() + PATIENCE_S
        while stat(pid)[:1] != ["T"] and time.monotonic() < deadline:
            time.sleep(POLL_S)
        print("held", flush=True)
        sys.stdin.buffer.read()
        signal.pidfd_send_signal(process, signal.SIGCONT)
    except ProcessLookupError:
        pass  # it was killed meanwhile
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2]))
