"""The harness: scenarios, faults, checks, verdicts, reports, and the two drivers that run validators.

The folders stand in layers, and each imports from those to the left alone::

    common, misbehaviour → scenario → record, disks → faults, audit → checks → simulation, live → report → tools

``simulation/`` drives validators in one process and virtual time, ``live/`` as Ray actors with real disks, sockets and
clocks. Neither knows the other, ``checks/`` or ``report/``: both leave the same run record behind.
"""
