"""A testnet on Kubernetes: what the driver and the commands must call alike."""
