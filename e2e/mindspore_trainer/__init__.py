"""A small network in real MindSpore on CPUs, trained under MindIO by its own callback (docs/internals/toy-trainer.md).

Run by an interpreter that has MindSpore; the project's own environment has none. Real are msrun's command line,
MindSpore's scheduler and `init()`, `Model.train` with its wrapper, `_tft_handler` and `TrainFaultTolerance`; played is
what needs a chip (chips.py).
"""
