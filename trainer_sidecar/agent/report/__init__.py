"""What the coordinator is told: facts, each under an id of its own, and states, until it has acknowledged them."""
