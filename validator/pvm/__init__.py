"""The programs that actors run: Python in a metered VM (:mod:`validator.pvm.runtime.machine`), and
``builtin:script``."""
