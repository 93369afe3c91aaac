"""``--otlp``: the way of transactions and timers through a run, as spans for a collector of OpenTelemetry.

Drivers report steps (:class:`cluster.record.run.Step`); :mod:`ways` makes spans of the final blocks and the steps;
:mod:`otlp` exports them, and alone imports OpenTelemetry. The kit is loaded by a run that has the option.
"""
