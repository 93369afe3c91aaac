"""An independent ``builtin:script``: a script's operations, and the effects of each of its runs."""
