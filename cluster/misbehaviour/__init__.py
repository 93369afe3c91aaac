"""Intentionally wrong validators: byzantine behaviours and planted bugs."""
