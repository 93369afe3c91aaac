"""Families about Python actors: what they do when they are called, their deployment, and their jobs."""
