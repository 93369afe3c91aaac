"""The auditor's implementation of ``builtin:script``: reads a script's operations, and computes a run's effects."""
