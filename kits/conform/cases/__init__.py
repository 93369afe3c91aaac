"""Generated cases of the conformance tool, and what draws them."""
