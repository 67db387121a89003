"""Process nodes: simulated nodes that run pods as processes of this machine (docs/internals/process-nodes.md)."""
