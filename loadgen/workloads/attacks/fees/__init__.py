"""Attacks on prices: the lane's basefee and tips."""
