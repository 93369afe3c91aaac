"""``stampede dos search``: finds attacks that nobody wrote down."""
