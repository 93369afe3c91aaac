"""The rules of certificates, votes, final blocks and states, checked for both drivers, simulated and live."""
