"""Transactions on their way into a block: offers and the mempool."""
