"""Second implementations of parts of a node, which follow its events and say what its effects must be."""
