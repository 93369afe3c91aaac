"""``stampede conform``: tests another implementation of the protocol with given and generated cases."""
