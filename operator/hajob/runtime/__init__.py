"""The shell: the only part of the operator that touches the world.

Plans are made elsewhere; here they are carried out (docs/decisions/0004-the-status-is-the-journal.md).
"""
