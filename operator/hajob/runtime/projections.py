"""Moved: what is kept of pods and nodes is parsed in hajob.sources.pod and hajob.sources.node (pure)."""
