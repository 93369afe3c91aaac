"""The code and other files that a scenario names: how they are read, and the gate before anything of them runs."""
