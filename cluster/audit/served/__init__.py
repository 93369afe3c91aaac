"""What validators served: their chains, and proofs of state."""
