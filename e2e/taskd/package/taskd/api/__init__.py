"""The functions that a start script calls."""
