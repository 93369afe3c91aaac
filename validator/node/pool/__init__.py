"""Transactions until they are in a block: offers and the mempool."""
