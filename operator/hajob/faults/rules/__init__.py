"""The state of the cluster's hardware, outside any job: the faults that stand, and those that are believed. Pure."""
