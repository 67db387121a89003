"""The connection to the coordinators: the channel, and what is said on it."""
