"""The commands that run or control a testnet: ``stampede run``, ``up``, ``attach``, ``inject`` and ``stop``."""
