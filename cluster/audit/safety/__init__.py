"""The rules of certificates and votes, for both drivers."""
