"""The first process of the trainer container: runs the user's command, and the ranks it asks for.

Packed as one file, `launcher.pyz`, by `trainer_sidecar.install`. It runs under whatever Python the training image has,
so everything here is the standard library of Python 3.7 and nothing else. docs/protocols/launcher.md describes what it
promises to the user's script and to the agent.
"""
