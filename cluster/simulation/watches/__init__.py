"""Watches on a simulated run: safety, votes, answers, memory, patience, promises."""
