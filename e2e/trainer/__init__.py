"""A toy training for tests and the demo: small in numbers, true in its parallelism and in how it is recovered."""
