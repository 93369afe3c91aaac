"""Byzantine behaviours. A chain must tolerate up to ``f`` byzantine validators."""
