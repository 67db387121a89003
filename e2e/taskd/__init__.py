"""A stand-in for TaskD: manager, agent and torchrun with its patch, as unkind as the real one (traits.py)."""
