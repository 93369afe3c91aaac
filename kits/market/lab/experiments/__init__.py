"""The lab's experiments, one module each."""
