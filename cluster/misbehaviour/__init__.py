"""Validators that may be wrong: byzantine behaviours, and planted bugs."""
