"""``stampede load`` and ``dos``: a load against a running testnet, and the effect of attacks."""
