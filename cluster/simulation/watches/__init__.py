"""Watches, which check rules during a simulated run: safety, votes, answers, memory, patience, restraint, promises."""
