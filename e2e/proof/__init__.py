"""Every action, for every set of ranks, at every moment, on whole trainings (docs/proof.md is made by it)."""
