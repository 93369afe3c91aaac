"""Developer tools for Python actors: check a program, run it on a local chain, profile it, and a stub for editors.

Nothing here is part of a validator: programs run in the validator's transition and actor VM, observed from outside.
"""
