"""A scenario before it runs: validation, timeline, estimates, warnings, network.

:mod:`.outline` is pure; :mod:`.show` prints it and renders it as a page, and :mod:`.picture` draws the network.
"""
