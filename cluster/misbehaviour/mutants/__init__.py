"""Deliberately broken validators, by which the harness proves itself.

A mutant is a small named patch outside the production path: a class derived from one that a validator is made of (its
state transition, its engine, its store), which breaks exactly one rule, in those validators that the scenario names. It
counts how often the mutated line ran. Caught means that the check named for it fails, the line ran, and the same seed
passes without it. ``stampede mutants`` plants all of them (:mod:`cluster.tools.sweeps.mutation.detection`), and those
in the harness itself (:mod:`cluster.tools.sweeps.mutation.harness_mutants`).
"""
