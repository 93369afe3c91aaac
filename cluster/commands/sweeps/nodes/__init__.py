"""The nodes that seeds run on: their workers, and the transfer of what seeds leave."""
