"""Beside the ranks of one node: what they do is reported, what they may do is enforced here.

A coordinator dials in over gRPC and says what this node's ranks should be (a level, never an edge); the agent makes it
so through the launcher, reports every exit at once, and holds the ranks' MindIO links at its gate until they may pass.
docs/protocols/sidecar.md is the protocol above, docs/protocols/launcher.md the one below.
"""
