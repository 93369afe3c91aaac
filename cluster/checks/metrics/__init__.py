"""Metrics of a run: latency, throughput, fees, recovery, committees."""
