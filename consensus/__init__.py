"""Pure consensus protocols: messages, keys, certificates, Simplex, HotStuff, leader election, vote journal.

Nothing in this package touches a socket, a clock, a thread, a random source or a file. An engine takes events and
returns effects (:mod:`consensus.interface`); whoever drives it performs the effects and answers with further events.
This package imports nothing of the project's other packages: a block is a digest and an opaque body to it.
"""
