"""A real Kubernetes control plane as local processes, and the lifetime of a run (docs/internals/local-cluster.md)."""
