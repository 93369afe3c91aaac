"""The state transition of a block, its bounds and its traces."""
