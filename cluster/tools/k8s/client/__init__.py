"""Everything that talks to the API server of a Kubernetes cluster."""
