"""Helpers that know neither chains nor runs: errors, files, text input, wording."""
