"""Every action, for every set of ranks, at every moment, on whole trainings (docs/internals/proof.md is made by it)."""
