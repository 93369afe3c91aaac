"""Measured numbers that scenarios name: latencies between regions, and the times of a machine."""
