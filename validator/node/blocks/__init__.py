"""Blocks on their way to final: held, verified, executed, fetched and committed."""
