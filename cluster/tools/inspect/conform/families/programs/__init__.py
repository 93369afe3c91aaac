"""Families about Python actors: what they do when they are called, and their jobs."""
