"""What commands share at a terminal: options, progress, tables, output."""
