"""What the operator counts, as Prometheus reads it."""

from __future__ import annotations

from hajob.metrics import REGISTRY


def sample(name: str, **labels: str) -> float:
    """Return a metric's value now, by the name under which it is scraped; 0 where nothing was counted yet."""
    return REGISTRY.get_sample_value(name, labels) or 0.0
