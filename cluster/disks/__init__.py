"""The disks that validators write to, and how they fail."""
