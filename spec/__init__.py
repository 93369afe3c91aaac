"""The protocol as an executable specification: plain Python that is read like a document.

It is the second of the project's two implementations. ``validator`` is fast, this one is plain; each judges the other.
Nothing of the project is imported here. A rule is changed here first, and then in the validator until the two agree.

Read :mod:`spec.block` first, then what its steps call, in the order of ``docs/protocol.md``:

===========================  ===========================================================================================
module                       chapter
===========================  ===========================================================================================
:mod:`spec.encoding`         bytes, hashes, transactions, headers and blocks, receipts
:mod:`spec.parameters`       the parameters and their ranges
:mod:`spec.world`            the state, and how a failing run takes its changes back
:mod:`spec.block`            how a block is processed; admission and fees
:mod:`spec.fees`             basefees and the median tip
:mod:`spec.runs`             a run of a handler; :mod:`spec.host`: what it may call, and what that costs
:mod:`spec.scripts`          ``builtin:script``, envelopes
:mod:`spec.programs`         where programs are run
:mod:`spec.timers`           scheduling; :mod:`spec.watches`: timers that watch a key
:mod:`spec.phase`            the timer phase: expiry, turns, fires
:mod:`spec.agents`           bidding agents, prices
:mod:`spec.policies`         ``fifo``, ``cip1``, ``gba_auction``, ``bias_auction``
:mod:`spec.messages`         messages; :mod:`spec.jobs`: jobs of runners
:mod:`spec.governance`       system instructions
:mod:`spec.leaves`           the records of the state tree; :mod:`spec.tree`: the tree, and its state root
===========================  ===========================================================================================

``world.reached("L-08")``, ``world.refuse("T-08", …)`` and a number in brackets mark the place where the rule of that
number is applied.
"""
