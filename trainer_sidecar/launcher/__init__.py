"""The first process of the trainer container: runs the user's command, and starts the ranks that it launches.

Packed as one file, `launcher.pyz`, by `trainer_sidecar.install`. It runs under whatever Python the training image has,
so it uses the standard library of Python 3.7 and nothing else. docs/protocols/launcher.md describes its contract with
the user's script and with the agent.
"""
