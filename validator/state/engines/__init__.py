"""Engines that hold a state: dictionaries in plain Python, or arrays with compiled kernels."""
