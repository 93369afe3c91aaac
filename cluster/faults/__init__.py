"""The fault engine that both drivers share, and the model of the links."""
