"""What a run leaves behind, in memory and on disk."""
