"""Bugs that are derived from the code by itself, and the share of them that random scenarios detect.

Each bug changes one place of a module of ``consensus`` or ``validator``. No file is changed: a process of its own
imports the changed source in place of the module.
"""
