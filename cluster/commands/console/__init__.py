"""Parts that all commands share: options, progress, tables and output."""
