"""``stampede load`` and ``dos``: a load alone against a testnet that runs, and what attacks come to."""
