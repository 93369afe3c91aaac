"""The load generator: workloads, the Locust users that run them, and a client of the validators' HTTP interface.

``workloads/`` is pure and does not import Locust, so that the simulator runs the same users as the live testnet. The
other modules talk to a testnet only over HTTP, and import only the encoding and signing of transactions from the
validator.
"""
