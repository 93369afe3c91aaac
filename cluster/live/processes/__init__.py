"""Processes of a machine: signals, pauses, clean-up, and their last words."""
