"""The nodes of a Ray cluster: what they are, and which of them carry what."""
