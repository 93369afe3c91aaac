"""Proofs of presence and absence against a state root, and their verification."""
