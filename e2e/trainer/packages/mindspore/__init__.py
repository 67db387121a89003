"""Stands for MindSpore where its scheduler runs: a process of its own on the CPU, at which the workers meet."""


def set_device(_name: str) -> None:
    """The scheduler computes nothing."""
