"""Certificates: the installation's authority, and those of each job's coordinator and agents."""
