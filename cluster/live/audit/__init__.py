"""What validators serve is taken and audited, while a live run goes and at its end."""
