"""Attacks on the calendar: pending timers, what is done to them, and how they end."""
