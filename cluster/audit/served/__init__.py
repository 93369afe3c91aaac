"""Reads and checks what validators served: their chains, and their proofs of finality and state."""
