"""What a machine can do, measured: the testnet that it carries, and the pace at which a simulation resembles it."""
