"""The parts that talk to the API server of a Kubernetes cluster."""
