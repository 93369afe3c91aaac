"""The process that starts a live testnet, watches it, injects its faults and collects its record."""
