"""``stampede lab``: experiments on scheduling policies, with agents that have private values, on the real scheduler."""
