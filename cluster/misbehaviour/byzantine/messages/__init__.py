"""Behaviours that send wrong, stale or unproved messages to peers."""
