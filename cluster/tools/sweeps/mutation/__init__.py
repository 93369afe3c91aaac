"""Mutation testing: the runs that provoke each planted bug, and the check that must catch it."""
