"""Behaviours of leaders: silent, forgetful, contradictory, with invalid blocks."""
