"""Joining the chain by a snapshot that peers send."""
