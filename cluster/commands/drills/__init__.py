"""Drills: scenarios with written expectations, each run by a command (``docs/drills.md``). One file per drill."""
