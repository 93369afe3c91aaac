"""Processes of a machine: signals, pauses, cleanup, and last words."""
