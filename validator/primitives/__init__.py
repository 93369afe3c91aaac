"""Types, encoding, costs, parameters and errors, which everything else rests on."""
