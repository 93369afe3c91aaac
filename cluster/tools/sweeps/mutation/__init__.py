"""Detection of planted bugs: the runs that provoke each, and the check that must catch it."""
