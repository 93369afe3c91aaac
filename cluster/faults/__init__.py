"""The fault engine that both drivers share, and the link model."""
