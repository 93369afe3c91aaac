"""Validators that are wrong on purpose: byzantine behaviours and planted bugs."""
