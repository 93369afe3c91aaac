"""Collects and audits what validators serve, during a live run and at its end."""
