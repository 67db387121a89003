"""One way to set up and use the whole for scenarios, the demo and benchmarks (docs/internals/local-cluster.md)."""
