"""The testnet's own endpoint: what the driver shows of a run that goes on, and what clients may ask of it."""
