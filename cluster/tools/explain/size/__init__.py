"""``stampede size``: the cores, memory, disk and bandwidth that a scenario wants, from a calibration of this machine.

:mod:`.calibration` measures small testnets in processes of its own, :mod:`.estimate` is pure arithmetic.
"""
