"""What operator, coordinator and agent share to talk to each other: TLS, and streams of two halves.

The messages are in `hajob.protocol`.
"""
