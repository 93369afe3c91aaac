"""From a checked program to the code that runs, with its charges."""
