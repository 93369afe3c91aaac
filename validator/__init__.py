"""One validator, pure: transactions, the state transition, the scheduler, the state tree, mempool, sync and the node.

Nothing here touches a socket, a clock, a thread, a random source or Ray. Bytes reach a disk through the injected
:class:`validator.storage.disk.Disk`. The package imports :mod:`consensus` and nothing else of the project.
"""
