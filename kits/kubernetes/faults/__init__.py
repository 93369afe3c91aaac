"""Faults of a live run that Kubernetes or Chaos Mesh performs, told by the run's driver in its pod."""
