"""Attacks on the timer lane: the distribution of its cycles and cells."""
