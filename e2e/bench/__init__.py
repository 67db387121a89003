"""Benchmarks; what they promise stands in the tables they print."""
