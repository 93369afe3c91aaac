"""Drills: one command each, a scenario with written expectations (``docs/drills.md``). One file per drill."""
