"""A small GPT in real PyTorch on CPUs, with gloo and torch's TCPStore, under MindIO (docs/internals/toy-trainer.md).

Run by an interpreter that has torch; the project's own environment has none. Numbers, handlers and names follow what
MindSpeed-LLM does on chips: communicators that are made at their first collective from root info in the store, groups
that MindIO names, an optimizer whose shards exist twice.
"""
