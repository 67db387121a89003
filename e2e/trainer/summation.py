"""Sums whose result does not depend on who computed which part.

Floating point addition is not associative, so a sum over the global batch would change when micro batches move to
another rank. Here the order is fixed by the index of the micro batch alone: a binary tree over 0 … n−1. A rank sums the
whole subtrees inside its share and sends these; whoever completes the tree gets the same bits however it was cut.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
Node = tuple[int, int]  # first leaf, number of leaves (a power of two; leaves past the end count as absent)


def root(leaves: int) -> Node:
    """Node that covers all leaves."""
    size = 1
    while size < leaves:
        size *= 2
    return (0, size)


def subtrees(part: range, leaves: int) -> list[Node]:
    """Largest subtrees that `part` covers completely, from left to right."""
    return _covered(root(leaves), part, leaves)


def _covered(node: Node, part: range, leaves: int) -> list[Node]:
    first, size = node
    end = min(first + size, leaves)
    if first >= end or end <= part.start or part.stop <= first:
        return []
    if part.start <= first and end <= part.stop:
        return [node]
    half = size // 2
    return _covered((first, half), part, leaves) + _covered((first + half, half), part, leaves)


def add_up(node: Node, known: Mapping[Node, Vector], leaves: int) -> Vector:
    """Sum of a subtree from the sums of smaller ones.

    `known` maps nodes to vectors of one shape; leaf i is the node (i, 1). Raises KeyError when a part is missing.
    """
    if node in known:
        return known[node]
    first, size = node
    if size == 1:
        raise KeyError(f"no gradient for micro batch {first}")
    half = size // 2
    left = add_up((first, half), known, leaves)
    if first + half >= leaves:
        return left
    total: Vector = left + add_up((first + half, half), known, leaves)
    return total
