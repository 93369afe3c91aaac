"""Whether planted bugs are caught: where each is planted, and what must catch it."""
