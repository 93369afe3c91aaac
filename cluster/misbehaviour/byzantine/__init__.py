"""Byzantine behaviours, up to ``f`` of which a chain must withstand."""
