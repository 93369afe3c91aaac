"""Proofs of presence and absence against a state root: making and verifying them."""
