"""Lines of a training's output that say how it ends or why it cannot begin, where its exit code does not.

Megatron ends with 0 when a checkpoint can't be loaded, and also when it stops early on request; some of its failures
lie far above the last lines of its output. A rank whose fault MindIO is to repair does not end at all: its output is
the only description of the fault. The texts are those of Megatron core 0.12, MindSpeed-LLM, torch_npu and MindSpore
(docs/protocols/launcher.md#ends).
"""

from __future__ import annotations

import re
from typing import Dict, List, Tuple

EARLY_END = "EarlyEnd"
NOT_LOADED = "CheckpointNotLoaded"
NO_TRACKER = "TrackerMissing"
LAYOUT = "LayoutRefused"
BUILD = "BuildFailed"
LOADED = "CheckpointLoaded"
FAULT = "Fault"
TOLD_AT_ONCE = (NO_TRACKER, FAULT)
"""Kinds that the agent needs while the process still runs."""

_TEXTS: List[Tuple[str, bytes]] = [
    (EARLY_END, rb"exiting program (?:at iteration|after) "),
    (
        NOT_LOADED,
        (
            rb"could not load the checkpoint|ERROR: Invalid metadata file|unable to load iteration from checkpoint"
            rb"|Unable to load (?:optimizer|rng state) from checkpoint|'--exit-on-missing-checkpoint' set"
        ),
    ),
    (NO_TRACKER, rb"could not find the metadata file"),
    (LAYOUT, rb"High availability do not support the size of"),
    (
        BUILD,
        (
            rb"(?:gcc|g\+\+|c\+\+|cc1plus|make)(?:: command)?:? not found|make(?:\[\d+\])?: \*\*\* "
            rb"|Failed to compile the C\+\+ dataset helper|helpers.*(?:Permission denied|Read-only file system)"
        ),
    ),
    (LOADED, rb"successfully loaded checkpoint from .* at iteration \d+"),
]
_ANY = re.compile(b"|".join(b"(" + text + b")" for _, text in _TEXTS))
_KINDS = [kind for kind, _ in _TEXTS]
# What names an end stands at the beginning of its line; a program may print megabytes without a line end.
_LINE_CHARACTERS = 500
_FAULT = re.compile(
    rb"UCE ?ERROR|HBM MULTI BIT ECC ERROR|SUSPECT (?:MEM|REMOTE) ERROR|(?:HCCS|UB) LINK ERROR|HCCL OP RETRY FAILED"
    rb"|[Ee]rr(?:or)?[ _]?[Cc]ode\D{0,8}\b(?:50705[347]|507904)\b"  # CANN: memory (53, 54), network
    rb"|(?:UCE|HCCE|TRE)Error|PRECISION ERROR|^\[ERROR\].*\bERR\d{5}\b|^[\w.]*(?:Error|Exception)(?:: |\s*$)"
)
_NO_FAULT = re.compile(rb"FORCE ?STOP|(?:ARF|STEP) FINISH|ForceStopError")
"""Lines that healthy ranks print while MindIO recovers them."""
_TEE = re.compile(rb"^tee: .+: .+")


_LOADING = re.compile(r"\b_?load_(?:base_|dist_)?(?:checkpoint|ckpt)|\bload_state_dict\b|\bload_param_into_net\b")
"""Functions in a traceback of Megatron, MindSpeed-LLM, MindFormers or torch that read a checkpoint."""


def names_loading_function(line: str) -> bool:
    """Return whether a line of a traceback names a function that loads a checkpoint."""
    return _LOADING.search(line) is not None


def kind_of_line(line: bytes) -> str:
    """Return the kind of a rank's line, "" for most lines."""
    found = _ANY.search(line)
    return _KINDS[(found.lastindex or 1) - 1] if found else ""


def note_telling_line(notices: Dict[str, str], line: bytes) -> str:
    """Keep in `notices` the first line of each kind, of faults the newest; return the kind when it is new, else ""."""
    kind = kind_of_line(line)
    if not kind and _FAULT.search(line) and not _NO_FAULT.search(line):
        notices[FAULT] = _decoded_line(line)
        return FAULT
    if not kind or kind in notices:
        return ""
    notices[kind] = _decoded_line(line)
    return kind


def _decoded_line(line: bytes) -> str:
    return line[:_LINE_CHARACTERS].decode("utf-8", "replace").strip()


def is_lost_log_line(line: bytes) -> bool:
    """Return whether the script's `tee` can't write its file: it then ends with 1, however the training ends."""
    return _TEE.match(line) is not None
