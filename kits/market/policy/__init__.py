"""``stampede policy``: begin a scheduling policy, check it and see where its time goes."""
