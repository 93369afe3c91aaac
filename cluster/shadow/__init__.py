"""Shadow re-execution: a run's final blocks executed again by other Pythons, each in a fresh process.

:mod:`~cluster.shadow.worker` is that process, and needs nothing but what executing a block needs;
:mod:`~cluster.shadow.interpreters` says whether a Python can be one, and starts it.
"""
