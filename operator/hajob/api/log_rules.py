"""What is wrong with the log rules of a job before a line is printed.

A pattern may be none, and it may be met by a healthy training (docs/user/training-images.md, "Log rules").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

from hajob.api.enums import Framework
from hajob.api.spec import HATrainingJobSpec, LogRule
from hajob.domain.patterns import EngineMissingError, LinePattern, PatternError

_SHOWN_CHARACTERS: Final = 80
"""So much of a usual line is shown, around the place where a rule would find something to object to."""


class Printed(StrEnum):
    """When a healthy training prints a line."""

    AT_START = "while it starts"
    AT_STEPS = "with its steps"
    AT_SAVES = "when it saves"


@dataclass(frozen=True, slots=True)
class UsualLine:
    """A line that healthy trainings of a framework print."""

    framework: Framework
    printed: Printed
    text: str


def _usual_lines(framework: Framework, printed: Printed, *texts: str) -> tuple[UsualLine, ...]:
    return tuple(UsualLine(framework, printed, text) for text in texts)


USUAL_LINES: Final = (
    *_usual_lines(
        Framework.PYTORCH,
        Printed.AT_STEPS,
        " [2026-03-01 12:00:00] iteration      100/  100000 | consumed samples:        25600 | "
        "elapsed time per iteration (ms): 1420.3 | throughput per GPU (TFLOP/s/GPU): 181.2 | "
        "learning rate: 1.250000E-05 | global batch size:   256 | lm loss: 2.345678E+00 | loss scale: 1.0 | "
        "grad norm: 0.731 | num zeros: 0 | params norm: 812.345 | number of skipped iterations:   0 | "
        "number of nan iterations:   0 |",
        "INFO [2026-03-01 12:00:00] >>  iteration      100/  100000 | consumed samples:      25600 | "
        "consumed tokens:  104857600 | elapsed time per iteration (ms): 1420.30 |",
        "(min, max) time across ranks (ms):",
        " validation loss at iteration 1000 | lm loss value: 2.345678E+00 | lm loss PPL: 1.044034E+01 | ",
    ),
    *_usual_lines(
        Framework.PYTORCH,
        Printed.AT_START,
        "> initializing torch distributed ...",
        "using world size: 32, data-parallel size: 4, context-parallel size: 1, tensor-model-parallel size: 8, "
        "encoder-tensor-model-parallel size: 0, pipeline-model-parallel size: 1, "
        "encoder-pipeline-model-parallel size: 0",
        "WARNING: could not find the metadata file /ckpt/latest_checkpointed_iteration.txt",
        "    will not load any checkpoints and will start from random",
        "time to initialize megatron (seconds): 12.345",
        "[after megatron is initialized] datetime: 2026-03-01 12:00:00",
        "  check_for_nan_in_loss_and_grad ....... True",
        "  exit_on_missing_checkpoint ........... False",
        "  error_injection_rate ................. 0",
        "  distributed_timeout_minutes .......... 10",
    ),
    *_usual_lines(
        Framework.PYTORCH,
        Printed.AT_SAVES,
        "saving checkpoint at iteration    1000 to /ckpt in torch format",
        "  successfully saved checkpoint from iteration    1000 to /ckpt",
    ),
    *_usual_lines(
        Framework.MINDSPORE,
        Printed.AT_STEPS,
        "2026-03-01 12:00:00,000 - mindformers/core/callback/callback.py:756 - INFO - { Epoch:[  1/  2], "
        "step:[  100/ 1000], loss: 2.346, per_step_time: 1420ms, lr: 1.25e-05, overflow cond: False, "
        "loss_scale: 1.0, global_norm: [0.731], train_throughput_per_npu: 181.200T",
        "2026-03-01 12:00:00,000 - mindformers/core/callback/callback.py:764 - INFO -   10.0% "
        "|█████                                             | 180.28 samples/s/p  0:21:18 }",
    ),
)
"""As the frameworks write them, with the fields that each may have; a rule is told which of them it would meet."""


def log_rule_refusal(spec: HATrainingJobSpec) -> str:
    """Return why a log rule of the job cannot be served; empty: all can, or this installation cannot know."""
    for rule in spec.recovery.log_rules:
        try:
            LinePattern(rule.pattern)
        except EngineMissingError:
            return ""
        except PatternError as error:
            return f"spec.recovery.logRules, rule {rule.name}: the pattern {error}"
    return ""


def log_rule_notes(spec: HATrainingJobSpec) -> str:
    """Name the log rules that a healthy training would meet, each with one such line; empty: there is none."""
    return _notes_on_rules(spec.framework, spec.recovery.log_rules)


@lru_cache(maxsize=1024)  # asked with every status, and the rules of a job hardly ever change
def _notes_on_rules(framework: Framework, rules: Sequence[LogRule]) -> str:
    usual = [line for line in USUAL_LINES if line.framework is framework]
    return "; ".join(filter(None, (_note_on_rule(rule, usual) for rule in rules)))


def _note_on_rule(rule: LogRule, usual: Sequence[UsualLine]) -> str:
    try:
        pattern = LinePattern(rule.pattern)
    except PatternError as error:
        return f"log rule {rule.name} is not evaluated: {error}" if isinstance(error, EngineMissingError) else ""
    for line in usual:
        skipped = line.printed is Printed.AT_START and rule.start_delay_seconds
        if not skipped and pattern.matches_line(line.text):
            do = (
                "set its startDelaySeconds, or let it match only what a fault prints"
                if line.printed is Printed.AT_START
                else "let it match only what a fault prints"
            )
            found = _shortest_match(pattern, line.text)
            return f"log rule {rule.name} meets what a healthy training prints {line.printed}, {found!r}: {do}"
    return ""


def _shortest_match(pattern: LinePattern, text: str) -> str:
    """Return the shortest beginning of the line that still matches, or rather its end."""
    low, high = 1, len(text)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if pattern.matches_line(text[:middle]) else (middle + 1, high)
    return text[max(0, high - _SHOWN_CHARACTERS // 2) : high + _SHOWN_CHARACTERS // 2].strip()
