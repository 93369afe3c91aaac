"""Pure consensus protocols: messages, keys, certificates, Simplex, HotStuff, leader election, vote journal.

The package uses no socket, clock, thread, random source or file. An engine takes events and returns effects
(:mod:`consensus.interface`); its driver performs the effects and answers with further events. It imports none of the
project's other packages: here a block is a digest and an opaque body.
"""
