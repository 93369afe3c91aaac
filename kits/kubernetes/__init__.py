"""``stampede k8s``: scenarios on Kubernetes."""
