"""Attacks: workloads of malicious users, with a folder for each part of the chain that they target.

Each attack states its ``goal`` and the ``defence`` that should hold. ``docs/attacks.md`` has both, and the metric that
shows whether the defence holds. The attackers' funds are the ``budget`` of their group of users. When they are spent,
the mempool refuses the attackers' transactions, and their timers are destroyed.
"""
