"""What a live run leaves for another driver, if its own dies: lock, checkpoint, and what to do with them."""
