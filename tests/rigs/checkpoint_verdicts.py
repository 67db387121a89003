"""Does what a verdict asks for, as agent and launcher do together."""

from __future__ import annotations

from pathlib import Path

from trainer_sidecar.agent.supervise.user_files import order_to_change_files
from trainer_sidecar.checkpoints.verdict import Verdict
from trainer_sidecar.launcher.user_files import carry_out_order


def carry_out_verdict(root: Path, verdict: Verdict) -> None:
    """Carry a verdict out at once. OSError: it cannot be."""
    carry_out_order(str(root), order_to_change_files(verdict))
