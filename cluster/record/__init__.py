"""The record of a run, in memory and on disk."""
