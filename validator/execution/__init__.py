"""Running handlers: host context, mailbox, jobs, bidding, governance and the timer phase."""
