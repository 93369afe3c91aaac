"""Attacks on the timer lane: who gets how much of it."""
