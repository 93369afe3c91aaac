"""Attacks on the calendar: creation, changes and ends of pending timers."""
