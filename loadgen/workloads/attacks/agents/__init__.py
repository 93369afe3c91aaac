"""Attacks by bidding agents, and on the budget of their queries."""
