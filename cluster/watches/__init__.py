"""Simulated runs that are watched: observers check rules while validators run.

:mod:`cluster.watches.watched_simulation` runs a scenario on the simulator (:mod:`cluster.simulation`) under all
watches.
"""
