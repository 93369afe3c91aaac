"""Attacks on deferred work: messages, mailboxes and jobs."""
