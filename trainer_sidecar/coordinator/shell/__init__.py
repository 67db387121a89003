"""The shell around the core: whatever has a clock, a socket or a task. It decides nothing.

`hub` holds the connections (`agents`, `controller`, `server`) and hands each input to the core with its time.
"""
