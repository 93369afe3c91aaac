"""Transactions on their way into a block: admission and the mempool."""
