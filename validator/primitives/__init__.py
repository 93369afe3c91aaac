"""Types, encoding, costs, parameters and errors: the basis of all other packages."""
