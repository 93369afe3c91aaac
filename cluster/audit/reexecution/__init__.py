"""Re-execution of final blocks, and where two executions diverge: height, step of SPEC §3, state keys with both values.

:mod:`~.reexecutor` executes a chain again in this process, :mod:`~.follower` in its own one: during a live run, or of
another Python (:func:`~.again.execute`). :mod:`~.bisect` compares two traces and finds the step for
each validator of a run that diverged; :mod:`~.describe` puts it into words. :mod:`~.evidence` judges proofs of
misbehaviour, some of which need an execution.
"""

from __future__ import annotations

from typing import Final

MODULE: Final = "cluster.audit.reexecution.follower"
END: Final = b"end"
"""The last line that a follower reads."""
ASIDE: Final = "aside"
"""The argument of a follower during a live run."""
