"""Joining the chain by a snapshot from peers."""
