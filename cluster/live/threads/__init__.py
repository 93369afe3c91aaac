"""The threads of a validator, which do work for its event loop and return the results to it."""
