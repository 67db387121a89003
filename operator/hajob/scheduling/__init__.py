"""Capacity, quotas, gangs, spares and drains: what the scheduler could do with a job's pods; pure."""
