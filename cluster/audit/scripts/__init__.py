"""``builtin:script`` a second time: what a script says, and what each of its runs does."""
