"""The node: consensus, mempool, executor, catch-up and services for peers."""
