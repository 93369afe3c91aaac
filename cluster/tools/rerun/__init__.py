"""Simulated runs, run again: replayed event by event, shrunk, or forked.

Equal scenarios and seeds give equal runs, event by event. So a run's folder needs only scenario, seed and digests. The
digests show whether the code still gives the same run.
"""
