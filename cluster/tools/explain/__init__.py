"""A scenario before it runs: validation, timeline, estimates, warnings, network.

:mod:`.outline` is pure; :mod:`.terminal` prints it, :mod:`.page` renders it, and :mod:`.picture` draws the network.
"""
