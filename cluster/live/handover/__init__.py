"""What a live run leaves for another driver, if its own dies: checkpoint, files of rows, and their use."""
