"""Executing final blocks again, and where two executions part: height, step of SPEC §3, state keys with both values.

:mod:`~.reexecutor` executes a chain once more in this process, :mod:`~.follower` in one of its own beside a live run,
:mod:`~.worker` in a fresh one of another Python, which :mod:`~.interpreters` finds and starts. :mod:`~.bisect` lays two
traces side by side and finds the step for each validator of a run that diverged, :mod:`~.describe` puts it into words.
"""
