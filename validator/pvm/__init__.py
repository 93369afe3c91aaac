"""The programs that actors run: Python in a metered VM (:mod:`validator.pvm.machine`), and ``builtin:script``."""
