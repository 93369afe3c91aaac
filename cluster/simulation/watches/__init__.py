"""Watches on a simulated run: safety, votes, answers, memory, patience, restraint, promises."""
