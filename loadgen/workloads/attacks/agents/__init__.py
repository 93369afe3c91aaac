"""Attacks by the bidding agents of actors, and on the cycles that a block has for queries of such agents."""
