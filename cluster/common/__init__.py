"""Helpers that are independent of chains and runs: errors, files, text input, wording."""
