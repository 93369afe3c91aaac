"""Mutation testing of the harness: plants known bugs, runs scenarios that provoke them, and shows which are caught."""
