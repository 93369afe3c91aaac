"""Stops a process for as long as this program's standard input stays open, and resumes it then.

Run as ``python pause_holder.py PIDFD`` with an inherited descriptor of the process, so that another process that gets
its id later is never touched. It prints a line once it has sent SIGSTOP. Its parent holds the other end of its input:
when the parent ends, in whatever way, the stopped process is resumed. It imports no module of ours, so that it starts
in milliseconds and depends on nothing that a fault may have broken.
"""

import signal
import sys

IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that a terminal sends to its whole group must not end this process before the holders of its input."""


def main(descriptor: int) -> None:
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    try:
        signal.pidfd_send_signal(descriptor, signal.SIGSTOP)
        print("stopped", flush=True)
        sys.stdin.buffer.read()
        signal.pidfd_send_signal(descriptor, signal.SIGCONT)
    except ProcessLookupError:
        pass  # the stopped process was killed meanwhile


if __name__ == "__main__":
    main(int(sys.argv[1]))
