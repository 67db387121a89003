"""Nodes that are real: kubelet, containerd and runc, each in its own namespaces (docs/internals/local-cluster.md)."""
