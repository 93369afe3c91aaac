"""Files of a validator: frames, archive, journal, finality proofs."""
