"""The coordinator: the sidecar that drives MindIO's controller and the agents of one job.

The core (`core.py` and what it imports) is pure: it is told what happened and when, and answers with what is to be
sent. What it knows is a handful of values, each changed by one module (`job.py` has the list). Sockets, tasks and
clocks are in the thin shell around it (`agents.py`, `controller.py`, `server.py`, `__main__.py`). Who speaks to whom is
in docs/protocols/sidecar.md.
"""
