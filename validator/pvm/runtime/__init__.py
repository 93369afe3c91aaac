"""Running programs: the machine, host calls, operations, values and tasks."""
