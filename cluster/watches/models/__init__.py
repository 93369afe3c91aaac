"""Independent models of parts of a node, which follow its events and predict its effects."""
