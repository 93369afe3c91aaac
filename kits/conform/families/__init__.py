"""The families of conformance cases, a module for each part of the protocol."""
