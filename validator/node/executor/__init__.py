"""The executor: the slow work of one validator, job by job."""
