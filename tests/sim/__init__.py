"""Whole histories of a cluster in virtual time, from one seed each (docs/simulation.md).

The operator, the coordinator's core and the planner are the real ones. The API server is the one in memory, scheduler,
kubelets, agents and MindIO are actors, time is virtual: an hour of faults takes a second. A seed always gives the same
history, so that one that fails can be looked at.
"""
