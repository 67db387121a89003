"""Nodes, quotas, gangs and the queue of starts: what the scheduler could do with a job's pods; pure."""
