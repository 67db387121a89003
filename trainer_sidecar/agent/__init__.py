"""The agent beside the ranks of one node: it reports what they do and enforces what they may do.

A coordinator dials in over gRPC and sends the desired state of this node's ranks (a level, never an edge); the agent
applies it by the launcher, reports every exit at once, and holds the ranks' MindIO links at its gate until they may
pass. docs/protocols/sidecar.md is the protocol above, docs/protocols/launcher.md the one below.

`node.py` has the rules, `server.py` the coordinator's stream; they stand on rooms that know only those before them:

- `gate`: MindIO's port on this pod;
- `store`: the rendezvous store's port;
- `supervise`: the pod's processes and their launcher;
- `report`: what the coordinator is told.
"""
