"""Commands that look at what is there: state proofs, runs, divergences, single transitions."""
