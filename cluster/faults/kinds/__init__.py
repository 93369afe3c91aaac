"""The kinds of faults, a module each, which is named as the kind is."""
