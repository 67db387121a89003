"""Choose among the forms in which MindSpore and MindFormers save (docs/user/checkpoints.md, "MindSpore").

A training writes one of them. A directory may still hold several, because the form is an option that the user may have
changed: then the newest complete checkpoint of all of them counts, and each form's own pointers are corrected.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from hajob.domain.layout import Layout
from trainer_sidecar.checkpoints import iterations, mindspore
from trainer_sidecar.checkpoints.directory import Directory
from trainer_sidecar.checkpoints.verdict import Verdict

INNER: Final = "checkpoint"
"""The directory where MindFormers saves, below its `output_dir`."""


def evaluate_all_forms(directory: Directory, layout: Layout, passed_over: Collection[int] = ()) -> Verdict:
    """Return the verdict on the newest complete checkpoint of any form, for a job of this layout."""
    found = [
        iterations.evaluate_iterations(directory, passed_over),
        mindspore.evaluate_saved_by_mindio(directory, layout, passed_over),
    ]
    verdicts = [mindspore.evaluate_ranks(directory, layout, passed_over), *(one for one in found if one is not None)]
    newest = max(verdicts, key=lambda one: one.step)
    return Verdict(
        newest.name,
        newest.step,
        tuple(refusal for one in verdicts for refusal in one.refused),
        newest.copies,
        {path: text for one in verdicts for path, text in (one.writes or {}).items()},
        tuple(path for one in verdicts for path in one.aside),
    )
