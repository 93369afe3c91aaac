"""The executor: the slow work of one validator, as jobs."""
