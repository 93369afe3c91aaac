"""Commands that read existing data: state proofs, runs, divergences, single transitions."""
