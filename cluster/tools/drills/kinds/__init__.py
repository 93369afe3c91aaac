"""The drills, a module each."""
