"""The shell: the only part of the operator that touches the world (docs/decisions/0004-the-status-is-the-journal.md)."""
