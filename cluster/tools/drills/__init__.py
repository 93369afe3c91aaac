"""Drills: one command each, a scenario with a written expectation (``docs/drills.md``). One file a drill."""
