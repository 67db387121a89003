"""The controller's functions that a TaskD manager calls; each call is a line in the file TASKD_LAB_DEEDS."""

from __future__ import annotations

from e2e.taskd.lab.deeds import write_deed


def tft_init_controller(*_arguments: object) -> int:
    """Take in how many ranks there are."""
    return 0


def tft_register_mindx_callback(_name: str, _report: object) -> int:
    """Take a callback, which is never called."""
    return 0


def tft_query_high_availability_switch(*_arguments: object) -> bool:
    """Say that nothing is switched on."""
    return False


def tft_start_controller(*_arguments: object) -> int:
    """Begin."""
    return write_deed("mindio", "start")


def tft_destroy_controller() -> int:
    """End."""
    return write_deed("mindio", "destroy")


def tft_notify_controller_dump() -> int:
    """Hear that checkpoints are to be saved."""
    return write_deed("mindio", "dump")


def tft_notify_controller_stop_train(*arguments: object) -> int:
    """Hear that the training is to stop."""
    return write_deed("mindio", "stop_train", *arguments)


def tft_notify_controller_on_global_rank(*arguments: object) -> int:
    """Hear which ranks are lost."""
    return write_deed("mindio", "on_global_rank", *arguments)


def tft_notify_controller_change_strategy(*arguments: object) -> int:
    """Hear how to go on."""
    return write_deed("mindio", "change_strategy", *arguments)


def tft_notify_controller_prepare_action(*arguments: object) -> int:
    """Hear of a hot switch."""
    return write_deed("mindio", "prepare_action", *arguments)
