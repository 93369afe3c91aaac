"""The ledger: accounts, timers, fees, jobs and messages of one chain, kept a second time."""
