"""Deliberately broken validators, which test the harness, and bugs in the harness itself.

A mutant is a small named patch outside the production path: a class derived from a part of a validator (its state
transition, its engine, its store), which breaks exactly one rule, in the validators that the scenario names. It counts
how often the mutated line ran. A mutant is caught if the check named for it fails, the line ran, and the same seed
passes without it. ``stampede mutants`` plants all of them (:mod:`kits.mutation.detection`).
"""
