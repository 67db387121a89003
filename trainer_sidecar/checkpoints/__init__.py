"""Whether a saved checkpoint is complete: pure rules over a directory's listing, and thin functions around them.

An incomplete checkpoint is worse than none: a training that loads it dies, or goes on wrongly. So before a job is
started anew, one agent looks (docs/user/checkpoints.md).
"""
