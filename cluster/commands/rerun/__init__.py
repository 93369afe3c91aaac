"""Repetition of simulated runs: to replay them event by event, to shrink them, or to fork them. A live run is read.

Equal scenarios and seeds give equal runs, event by event. So a run's folder needs only scenario, seed and digests. The
digests show whether the code still gives the same run.
"""
