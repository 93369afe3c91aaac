"""Validators that may be wrong: byzantine behaviours, planted bugs, and executors that others wrote."""
