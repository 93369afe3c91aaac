"""Attacks: workloads of malicious users, with a folder for each part of the chain that they target.

Each states its ``goal`` and the ``defence`` that should hold; ``docs/attacks.md`` has both, and the metric that shows
it. An attacker's funds are the ``budget`` of its group of users: when it is spent, the mempool refuses its
transactions, and its timers are destroyed.
"""
