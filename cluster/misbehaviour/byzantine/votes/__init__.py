"""Behaviours that contradict, forge, replay or withhold votes and certificates."""
