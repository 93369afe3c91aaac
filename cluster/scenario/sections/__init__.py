"""The sections of a scenario file, one module each."""
