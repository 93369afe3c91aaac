"""Coverage-guided choice of random scenarios: what runs reached decides which are changed next."""
