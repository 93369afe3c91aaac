"""The composed attack: all means of the other attacks in one workload, by its options."""
