"""Load: workloads, Locust users and the HTTP client.

``workloads/`` is pure and free of Locust, so that the simulator runs the same users as the live testnet. Everything
else speaks to a testnet over HTTP only, and imports nothing of the validator but the encoding and signing of
transactions.
"""
