"""Layouts of trainings: those that were published, and any that divides."""

from __future__ import annotations

from itertools import product

from hypothesis import strategies as st

from hajob.domain.layout import Layout, RankOrder, Sharding
from tests.rigs.slow_layout import Slow

# Layouts of published training scripts: nodes, chips, tensor, pipeline, context, expert, expert tensor (0: as tensor),
# then data parallel and expert data as their authors name them (docs/user/training-images.md).
PUBLISHED_LAYOUTS = {
    "Kimi-K2": ((64, 16, 2, 8, 1, 64, 1), 64, 2),
    "Kimi-K2 on 768 chips": ((48, 16, 2, 8, 1, 96, 1), 48, 1),
    "DeepSeek-V3 671B A2": ((64, 8, 4, 8, 1, 32, 1), 16, 2),
    "DeepSeek-V3 671B A3": ((32, 16, 2, 8, 1, 32, 1), 32, 2),
    "DeepSeek-V3 tune A2": ((64, 8, 1, 8, 1, 64, 0), 64, 1),
    "DeepSeek-V3.2 16K": ((32, 16, 16, 8, 2, 64, 1), 2, 1),
    "GLM-5 744B": ((32, 16, 2, 8, 1, 64, 1), 32, 1),
    "Ring 1T": ((32, 16, 4, 8, 1, 16, 0), 16, 1),
    "Qwen3-235B": ((16, 16, 1, 4, 1, 32, 0), 64, 2),
    "Qwen3-235B 256K": ((16, 16, 4, 8, 8, 32, 1), 1, 1),
    "DeepSeek4-flash 128K": ((16, 16, 1, 4, 16, 32, 1), 4, 2),
    "Llama3-405B": ((16, 16, 16, 8, 2, 1, 0), 1, 2),
    "Llama2-70B 32K": ((16, 16, 4, 4, 8, 1, 0), 2, 16),
    "Qwen2.5-72B 32K": ((16, 8, 8, 4, 4, 1, 0), 1, 4),
    "LongCat 560B": ((8, 16, 16, 4, 1, 32, 1), 2, 1),
    "MindFormers DeepSeek-V3": ((32, 8, 8, 8, 1, 32, 1), 4, 1),
}


def layouts_with_slow_twins() -> st.SearchStrategy[tuple[Layout, Slow]]:
    """Draw layouts that divide, small enough for the slow twin that comes with each."""

    @st.composite
    def build(draw: st.DrawFn) -> tuple[Layout, Slow]:
        tp, pp, cp = (
            draw(st.sampled_from([1, 2, 3, 4])),
            draw(st.sampled_from([1, 2, 3])),
            draw(st.sampled_from([1, 2, 4])),
        )
        dp = draw(st.integers(1, 8))
        world = tp * pp * cp * dp
        chips = draw(st.sampled_from([c for c in (1, 2, 3, 4, 6, 8, 16) if world % c == 0]))
        order = draw(st.sampled_from(list(RankOrder)))
        mapped = order is RankOrder.TENSOR_PIPELINE_DATA
        grids = [
            (etp, ep)
            for etp, ep in product((1, 2, 3, 4), (1, 2, 3, 4, 6, 8))
            if (world // pp) % (etp * ep) == 0 and (not mapped or pp == 1 or etp * ep == tp * cp)
        ]
        etp, ep = draw(st.sampled_from([*grids, (tp, 1)]))
        copies = draw(st.sampled_from([1, 2]))
        fast = Layout(world // chips, chips, tp, pp, cp, ep, order, Sharding.DISTRIBUTED, copies, etp)
        return fast, Slow(world // chips, chips, tp, pp, cp, ep, mapped, copies, etp)

    return build()
