"""Explains a scenario before it runs: validation, timeline, estimates, warnings, network.

:mod:`.outline` is pure. :mod:`.outline_output` prints the outline or renders it as a page, and :mod:`.picture` draws
the network.
"""
