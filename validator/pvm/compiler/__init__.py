"""The compiler: it turns a checked program into code that runs and charges for its work."""
