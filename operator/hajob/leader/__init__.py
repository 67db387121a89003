"""Which operator leads: the Lease, what a leader may still write, and whether it is cut off from the coordinators."""
