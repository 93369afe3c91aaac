"""The checks that ship. A check is one class; a subject's checks share a file."""
