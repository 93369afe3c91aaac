"""``stampede load`` puts a load on a running testnet; ``stampede dos`` measures the effect of attacks."""
