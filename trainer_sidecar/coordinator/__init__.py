"""The coordinator: the sidecar that drives MindIO's controller and the agents of one job.

The core (`core.py` and its imports) is pure: it takes events with their times and returns the messages to send. Its
state is a handful of values, each changed by one module (`job.py` lists them). Sockets, tasks and clocks are in the
thin shell around it (`agents.py`, `controller.py`, `server.py`, `__main__.py`). docs/protocols/sidecar.md says which
process connects to which.
"""
