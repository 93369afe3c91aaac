"""Economics: a lab for scheduling policies, attacks on the timer market, and the search for them."""
