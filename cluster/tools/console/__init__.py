"""Shared by all commands at a terminal: options, progress, tables, output."""
