"""What a run does, for both drivers, as a pure function of what was seen."""
