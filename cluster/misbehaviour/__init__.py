"""Validators that may be wrong: byzantine behaviours, planted bugs, and programs that others wrote."""
