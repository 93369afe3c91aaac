"""The developer's side of Python actors: check a program, run it on a local chain, profile it, and a stub for editors.

Nothing here is part of a validator: programs run in the validator's own transition and actor VM, which are watched
from outside.
"""
