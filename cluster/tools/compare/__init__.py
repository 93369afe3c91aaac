"""Runs that were kept: their index, and their comparison."""
