"""What the operator does for a job, one module for each feature: start, spares, drains, evictions, pauses, expiry."""
