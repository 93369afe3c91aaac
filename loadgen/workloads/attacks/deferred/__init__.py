"""Attacks on what runs later: messages, mailboxes and jobs."""
