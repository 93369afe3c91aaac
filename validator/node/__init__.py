"""The node: consensus, mempool, executor, catch-up and what it serves."""
