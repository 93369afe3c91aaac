"""What a sweep prints and writes."""
