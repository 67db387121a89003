"""Process nodes: simulated Kubernetes nodes that run pods as processes of this machine (docs/process-nodes.md)."""
