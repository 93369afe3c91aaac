"""The harness: scenarios, faults, checks, verdicts, reports, and the two drivers that run validators.

``simulation/`` drives them in one process and virtual time, ``live/`` as Ray actors with real disks, sockets and
clocks. Both give the same run record (:mod:`cluster.record`) to the same checks (:mod:`cluster.checks`) and the same
report.
"""
