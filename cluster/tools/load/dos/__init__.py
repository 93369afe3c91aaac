"""The scorecard of attacks: what each does to honest users, and what it costs the attacker."""
