"""Is a saved checkpoint complete? Pure rules over a directory's listing, and thin functions around them.

A checkpoint that is only half there is worse than none: a training that loads it dies, or goes on wrongly. So before a
job is started anew, one agent looks (docs/checkpoints.md).
"""
