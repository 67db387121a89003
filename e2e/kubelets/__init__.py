"""Nodes that are real: kubelet, containerd and runc, each node in namespaces of its own (docs/local-cluster.md)."""
