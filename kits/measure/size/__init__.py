"""``stampede size``: the cores, memory, disk and bandwidth that a scenario needs, from a calibration of this machine.

:mod:`.measuring` measures small testnets in separate processes, :mod:`.estimate` is pure arithmetic.
"""
