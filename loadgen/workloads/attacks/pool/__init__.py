"""Attacks on the mempool and the user lane."""
