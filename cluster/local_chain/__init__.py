"""A chain in one process, without consensus: what programs, markets and conformance cases are tried on."""
