"""A testnet on Kubernetes: its API, its names, and faults by Kubernetes and Chaos Mesh."""
