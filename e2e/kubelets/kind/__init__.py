"""Nodes that kind runs as containers of Docker, for machines that have both (docs/internals/local-cluster.md)."""
