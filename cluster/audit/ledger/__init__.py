"""The ledger: accounts, timers, fees, jobs and messages of one chain, kept independently of the validators."""
