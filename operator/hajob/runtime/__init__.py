"""The shell: the only part of the operator with side effects.

hajob.plan makes the plans; this package carries them out (docs/decisions/0004-the-status-is-the-journal.md).
"""
