"""Comparison of recorded runs."""
