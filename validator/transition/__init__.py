"""The state transition of a block, and what bounds and traces it."""
