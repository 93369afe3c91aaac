"""Byzantine behaviours: ways in which validators break the protocol. A chain must tolerate ``f`` such validators."""
