"""The scorecard of attacks: the effect of each on honest users, and its cost for the attacker."""
