"""The rendezvous store's port on this pod, and what its processes have written through it.

It stands on the gate's listener and connection. docs/protocols/launcher.md#the-store
"""
