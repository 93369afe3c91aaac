"""``stampede dos search``: a search for unknown attacks."""
