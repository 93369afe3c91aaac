"""The command line: options and dispatch."""
