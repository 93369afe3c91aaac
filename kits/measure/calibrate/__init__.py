"""Calibration of the simulator by live runs of a scenario."""
