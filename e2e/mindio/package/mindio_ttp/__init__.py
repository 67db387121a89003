"""An honest simulator of MindIO TFT's Python package, for machines without an accelerator.

This is NOT Huawei's `mindio_ttp`. It carries the same module and function names so that a training script and a
controller host written against the real package run unchanged, and it behaves as `docs/protocols/mindio.md`
describes: one controller and many processors in real processes, over real TCP links, with the same callbacks, texts,
timers and traps. Standard library only. Nothing of it is used where the real package is installed; the environment
variables it understands beyond the real one's all begin with `SIM_MINDIO_` (see `_settings`).
"""
