"""Attacks: workloads of users that mean harm, with a folder for each part of the chain that they aim at.

Each says its ``goal`` and the ``defence`` that should hold; ``docs/attacks.md`` has both, and the metric that shows
it. An attacker's means are the ``budget`` of its group of users: when it is spent, the mempool refuses its
transactions, and its timers are destroyed.
"""
