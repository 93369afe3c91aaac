"""What judges a live run while it goes on, and collects what its validators serve at the end."""
