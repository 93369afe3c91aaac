"""One validator, without I/O: transactions, state transition, scheduler, state tree, mempool, sync and node.

The package uses no socket, clock, thread, random source or Ray. Bytes reach a disk through the injected
:class:`validator.storage.disk.Disk`. Of the project's other packages it imports only :mod:`consensus`.
"""
