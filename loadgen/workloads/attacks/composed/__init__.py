"""The composed attack: all methods of the other attacks in one workload, by its options."""
