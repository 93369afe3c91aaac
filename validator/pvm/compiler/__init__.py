"""The compiler: from a checked program to the code that runs, with its charges."""
