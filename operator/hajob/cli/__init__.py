"""kubectl-hajob: what people type."""
