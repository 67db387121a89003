"""A real Kubernetes control plane as local processes, and the lifetime of a run (docs/local-cluster.md)."""
