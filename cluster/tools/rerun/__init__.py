"""Runs of the simulator that run again: shown message by message, shrunk to what makes them fail, or sent another way.

A run's folder names its scenario and its seed, and equal scenarios and seeds are equal runs, event by event. So nothing
of a run has to be recorded but its digests, by which a run that repeats is told from one of other code.
"""
