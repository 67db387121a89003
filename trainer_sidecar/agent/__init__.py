"""The agent beside the ranks of one node: it reports what they do and enforces what they may do.

A coordinator dials in over gRPC and sends the desired state of this node's ranks (a level, never an edge); the agent
applies it by the launcher, reports every exit at once, and holds the ranks' MindIO links at its gate until they may
pass. docs/protocols/sidecar.md is the protocol above, docs/protocols/launcher.md the one below.
"""
