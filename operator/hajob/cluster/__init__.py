"""What is known about the cluster's hardware, outside any job: which faults stand, and which are believed. Pure."""
