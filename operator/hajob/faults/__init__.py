"""Faults of nodes and chips: the watch on the objects that report them, the quarantines, and the rules for both."""
