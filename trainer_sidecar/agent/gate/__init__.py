"""The gate: MindIO's port on this pod, what passes it, and what it says in the place of a rank that is gone.

`gate.Gate` is the door; `rules.Rules` is what it asks of the agent. The listener and the connection upstream serve the
store's port as well. docs/protocols/launcher.md#the-gate
"""
