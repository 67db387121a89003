"""What the scheduler could do with the pods of a job; pure."""
