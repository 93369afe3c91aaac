"""Where two executions of a block part: the height, the step of SPEC §3, the state keys with both values.

:mod:`~cluster.divergence.compare` lays two traces side by side, :mod:`~cluster.divergence.bisect` finds the honest one
for each validator of a run that diverged, :mod:`~cluster.divergence.words` says it so that people understand it.
"""
