"""Kits: what is built on the core of Stampede, a package each.

A kit imports the core and no other kit. The core imports none: it finds them by their entry points
(:mod:`cluster.common.plugins`).
"""
