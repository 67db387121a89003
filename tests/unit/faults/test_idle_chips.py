"""Which chips are known to be no pod's."""

from __future__ import annotations

from hajob.api import constants as names
from hajob.capacity.caches import Caches
from hajob.sources.node import NodeView
from hajob.sources.pod import ForeignPod, PodView

ALL = {names.DEFAULT_RESOURCE_NAME: 8}


def caches(*pods: PodView | ForeignPod) -> Caches:
    made = Caches()
    made.store_node(NodeView("n", chips=ALL, all_chips=ALL))
    for pod in pods:
        if isinstance(pod, PodView):
            made.store_pod(pod)
        else:
            made.capacity.store_pod(pod)
    return made


def rank_pod(chips: tuple[str, ...], asked: int = 2, phase: str = "Running") -> PodView:
    requests = ((names.DEFAULT_RESOURCE_NAME, asked),)
    return PodView("ns", "a-0", "u", "job", "rank", 0, 1, phase, node_name="n", chips=chips, requests=requests)


def test_a_chip_is_idle_where_every_pod_is_known_to_have_others() -> None:
    assert caches().is_idle_chip("n", "3")
    assert caches(rank_pod(("0", "1"))).is_idle_chip("n", "3")
    assert not caches(rank_pod(("0", "3"))).is_idle_chip("n", "3")
    assert caches(rank_pod(("0", "3"), phase="Failed")).is_idle_chip("n", "3")


def test_a_chip_that_a_pod_may_have_is_not_idle() -> None:
    assert not caches(rank_pod(())).is_idle_chip("n", "3")
    assert not caches(rank_pod((), asked=8)).is_idle_chip("n", "3")
    assert not caches(ForeignPod("ns/x", "n", ((names.DEFAULT_RESOURCE_NAME, 1),))).is_idle_chip("n", "3")
