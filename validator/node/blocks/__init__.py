"""Blocks until they are final: held, verified, executed, fetched and committed."""
