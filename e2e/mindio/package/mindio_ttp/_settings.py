"""Every environment variable in one place: those of the real package with their ranges, and the simulator's own.

Values are read when they are used, as the real package does at each start; one out of range falls back to the
default (docs/protocols/mindio.md §10). `SIM_MINDIO_OFF` names behaviours to leave out, which exists for one purpose:
a test turns each one off and sees a conformance vector fail. `SIM_MINDIO_FAULTS` names faults that were seen in the
real package and do not happen by themselves.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
import traceback
from pathlib import Path

HEARTBEAT_SECONDS = 2.0
TICK_SECONDS = 2.0
SILENCE_SECONDS = 8.0
SETTLE_SECONDS = 2.0
COLLECT_SECONDS = 5.0
LOCK_SECONDS = 30.0
RECONNECT_SECONDS = (0.0, 1.0, 3.0, 7.0, 15.0)
"""After the loss of its link: when a rank dials; then never again."""
BARRIER_SECONDS = 25.0
BACK_SECONDS = 0.002
"""From the return of the callback that tells of a "continue" until the controller is at rest again."""
HOLD_SECONDS = 0.2
"""So long a rank stays at its pause point after it was asked where it is: the real one may run past a pause."""
SWITCH_SECONDS = HOLD_SECONDS + 0.15
"""From the question where ranks are to the pause of a hot switch, which that kindness is not for: 40 to 90 ms were seen
on a busy machine, and no move of ranks with steps of 100 ms ended well."""
DYING_SECONDS = 0.02
"""So long the kernel still accepts for a controller that has died, while it takes its process apart."""
LAST_SERIAL = 20000
SAMPLE_SLEEPS = 20

#: Every behaviour that can be left out, and the paragraph of docs/protocols/mindio.md that asks for it.
BEHAVIOURS: dict[str, str] = {
    "four_callback_rule": "3.4",
    "second_fault_report": "3.2",
    "partial_codes": "3.5",
    "locked_not_stopped": "6.1",
    "strategies_unfiltered": "5.4",
    "invalid_strategy": "5.5",
    "params_length": "2.8",
    "sticky_wakeups": "5.2",
    "timers_expire": "5.3",
    "global_time_lengthens": "5.3",
    "exit_two_faces": "5.6",
    "no_result_for_exit": "5.6",
    "late_success": "5.7",
    "last_repair_failed": "5.8",
    "checkpoint_success_at_once": "7.4",
    "isolate_report": "7.5",
    "success_dicts": "5.9",
    "retry_falls_to_recover": "7.8",
    "refused_after_failed_stop": "7.9",
    "silence_rule": "3.3",
    "exception_delay": "3.3",
    "frozen_costs": "3.3",
    "stop_at_once": "6.3",
    "missing_invisible": "3.7",
    "early_restart_invisible": "8.6",
    "counter_never_reset": "8.6",
    "recover_waits": "7.1",
    "wider_dict": "7.1",
    "answers_while_waiting": "7.1",
    "upgrade_needs_all": "7.5",
    "upgrade_needs_asking": "7.5",
    "upgrade_never_wakes": "5.4",
    "handler_order": "7.1",
    "handler_arguments": "8.3",
    "selection": "7.2",
    "rename_rule": "4.4",
    "sorted_groups": "4.1",
    "offset_rule": "4.1",
    "partner_rule": "4.3",
    "no_divisibility_check": "4.8",
    "drop_rule": "7.5",
    "ignore_sigterm": "8.1",
    "exit_code_2": "8.5",
    "exit_delay": "8.5",
    "unprotected_without_controller": "9.5",
    "restarted_blind": "9.5",
    "pause_orders": "7.7",
    "hot_switch_orders": "7.7",
    "save_and_exit": "7.11",
    "pause_lengthens_waits": "5.3",
    "timer_ranges": "10.1",
    "named_not_asked": "6.2",
    "unnamed_found": "6.2",
    "link_theft": "9.2",
    "rank0_not_dropped": "7.5",
    "dropped_leaves_copy": "7.5",
    "reconnects": "9.3",
    "closing_gate_ends_protection": "9.4",
    "second_stop_fatal": "6.5",
    "second_naming_fatal": "6.5",
    "early_register_refused": "8.6",
    "silent_heart_loops": "9.2",
    "orderly_end_exits": "3.8",
    "never_lowered": "2.4",
    "unknown_rank_refuses": "2.3",
    "refusal_keeps_earlier": "2.3",
    "serials_end": "5.10",
    "no_second_shrink": "5.4",
    "store_probe": "7.6",
    "init_range_raises": "1.3",
    "start_failure_exits": "1.3",
    "int_only_dicts": "2.2",
    "callback_shapes": "3.1",
    "texts": "5.9",
    "raising_fault_report_exits": "3.6",
    "raising_stop_complete_exits": "3.6",
    "raising_strategies_exits": "3.6",
    "raising_second_report_is_logged": "3.6",
    "raising_result_is_logged": "3.6",
    "slow_callback_stalls": "3.6",
    "settling_is_not_cut": "3.3",
    "answer_clears_silence": "3.3",
    "ended_is_no_fault": "3.8",
    "lists_by_fault": "5.4",
    "lists_by_setting": "5.4",
    "step_0_offers_exit": "5.4",
    "bad_groups_offer_exit": "4.5",
    "alone_saves": "7.6",
    "alone_retries": "7.6",
    "late_answers_count": "5.3",
    "dump_after_406": "5.9",
    "named_not_locked": "6.1",
    "stop_after_strategy": "6.1",
    "registers_before_strategy": "6.2",
    "silence_costs_five": "6.2",
    "stuck_fails_the_lock": "6.6",
    "stuck_is_lost": "6.6",
    "recover_wait_ends": "7.1",
    "stop_before_clean": "7.1",
    "rebuild_before_repair": "7.1",
    "repair_selection": "7.1",
    "stop_clean_before_save": "7.2",
    "clean_tells_memory_fault": "7.3",
    "nothing_to_rebuild": "7.3",
    "checkpoint_repair": "7.4",
    "ready_counts_as_lost": "7.5",
    "stop_switch_before": "7.7",
    "stop_switch_after": "7.7",
    "raising_handler_fails": "8.3",
    "wrong_type_aborts": "8.3",
    "odd_error_waits": "8.2",
    "unchecked_without_zit": "4.8",
    "slow_handler_fails": "8.3",
    "closed_link_no_fault": "9.2",
    "lost_link_costs_the_limit": "7.12",
    "old_serials_dropped": "9.7",
    "theft_is_mutual": "9.2",
    "theft_blinds": "9.2",
    "theft_grows": "9.2",
    "loop_raises_counter": "9.2",
    "switch_of_unknown_ranks": "11.3",
    "stop_switch_leaves_a_word": "11.3",
    "serials_begin_anew": "11.2",
    "stopped_once": "11.5",
    "repaired_once": "11.5",
    "reconnects_for_15_seconds": "9.3",
    "rest_forgets": "7.7",
    "switch_keeps_its_step": "7.7",
    "dead_rank_fails_continue": "7.7",
    "save_unheard_while_smaller": "7.11",
    "save_loses_the_growth": "7.11",
    "growth_told_as_save": "7.11",
    "rank0_dropped_as_sibling": "7.5",
    "copy_before_rank0": "7.5",
    "dying_backlog": "9.3",
}

#: Faults of the real package that only the simulator can be asked for (`SIM_MINDIO_FAULTS`), and their paragraphs;
#: `<handler>_raises` and `<handler>_slow` come beside them.
FAULTS: dict[str, str] = {"destroy_hangs": "8.7", "stuck_in_update": "6.6"}


def _integer(name: str, low: int, high: int, default: int) -> int:
    try:
        value = int(os.environ.get(name, ""))
    except ValueError:
        return default
    if low <= value <= high or not on("timer_ranges"):
        return value
    return default


def mindx_wait_seconds() -> int:
    """How long the controller waits for MindX, also the length of the exit window."""
    return _integer("MINDIO_WAIT_MINDX_TIME", 1, 3600, 30)


def action_seconds() -> int:
    """The limit of one handler or action, and of the trainer's own waits for stop, pause and exit."""
    if shorter := os.environ.get("SIM_MINDIO_ACTION_LIMIT"):
        return int(shorter)
    return _integer("TTP_NORMAL_ACTION_TIME_LIMIT", 30, 1800, 180)


def connect_attempts() -> int:
    """How often a starting rank tries to connect."""
    return _integer("TTP_RETRY_TIMES", 1, 300, 10)


def stop_clean_before_dump() -> bool:
    """Whether the ranks that save are stopped and cleaned first."""
    return _integer("TTP_STOP_CLEAN_BEFORE_DUMP", 0, 1, 0) == 1


def framework_type() -> int:
    """The replica layout: 0 spread over the group, 1 partners `shift` apart."""
    return _integer("TTP_FRAMEWORK_TYPE", 0, 1, 0)


def master_address() -> tuple[str, int]:
    """Where a rank-hosted controller looks for a store before it saves."""
    return os.environ.get("MASTER_ADDR", ""), _integer("MASTER_PORT", 1024, 65535, 6000)


def mindspore() -> bool:
    """Whether the training framework is MindSpore."""
    return os.environ.get("MINDIO_FOR_MINDSPORE", "").lower() in {"true", "1"}


def exit_delay_seconds() -> float:
    """Seconds between the message to leave and the forced exit; 10 unless a test shortens it."""
    return float(os.environ.get("SIM_MINDIO_EXIT_DELAY", "10")) if on("exit_delay") else 0.0


def recover_wait_seconds() -> float:
    """How long a recover waits for the ranks that were lost."""
    return float(os.environ.get("SIM_MINDIO_RECOVER_WAIT", "600")) if on("recover_wait_ends") else 1.0


def oversleep(seconds: float) -> float:
    """By how much a limit of so many seconds is outgrown on this host: MindIO counts it in sleeps of a millisecond."""
    begun = time.monotonic()
    for _ in range(SAMPLE_SLEEPS):
        time.sleep(0.001)
    return seconds * ((time.monotonic() - begun) / (SAMPLE_SLEEPS * 0.001) - 1.0)


def die_after(action: int, number: int) -> None:
    """End this process as a crash would, if the action has been given to so many ranks; once.

    `SIM_MINDIO_DIES`: type of the action, number of ranks, a file that tells that it has happened.
    """
    asked = os.environ.get("SIM_MINDIO_DIES", "").split(":", 2)
    if asked[:2] != [str(action), str(number)]:
        return
    with contextlib.suppress(FileExistsError):
        Path(asked[2]).touch(exist_ok=False)
        os.kill(os.getpid(), signal.SIGKILL)


def first_serial() -> int:
    """The serial of the controller's first action; a test starts near the last one."""
    if not on("serials_begin_anew"):
        return 1000 + int(10 * time.monotonic()) % 30_000  # above what the controller before it has said
    return int(os.environ.get("SIM_MINDIO_FIRST_SERIAL", "1"))


def on(behaviour: str) -> bool:
    """Whether a behaviour is simulated; everything is unless `SIM_MINDIO_OFF` names it."""
    return behaviour not in os.environ.get("SIM_MINDIO_OFF", "").split(",")


_logging: set[str] = set()


RANK_LOG = "ttp_log"
"""The role of a rank; its log is a file of its own."""


def open_log(role: str) -> None:
    """Each role makes its logger once: a second one of that name aborts the process, unless logs go to stdout."""
    if os.environ.get("TTP_LOG_STDOUT") == "1":
        return
    if role in _logging:
        os.write(2, f"logger with name '{role}' already exists\n".encode())
        os.abort()
    _logging.add(role)
    if role == RANK_LOG:
        _write_log(Path(os.environ.get("TTP_LOG_PATH") or "logs"))


def _write_log(directory: Path) -> None:
    """Below the working directory unless TTP_LOG_PATH says otherwise; what cannot be written is said, no more."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"ttp_log.log.{os.getpid()}").write_text("mindio simulator\n")
    except OSError as error:
        os.write(2, f"Create logger path failed: {error.strerror}\n".encode())


def fault(name: str) -> bool:
    """Whether a fault seen in the real package is asked for by `SIM_MINDIO_FAULTS`."""
    return name in os.environ.get("SIM_MINDIO_FAULTS", "").split(",")


def log(text: str) -> None:
    """Write one line to stderr when `TTP_LOG_STDOUT` asks for it."""
    if os.environ.get("TTP_LOG_STDOUT") == "1":
        os.write(2, f"[mindio simulator {os.getpid()} {time.time():.3f}] {text}\n".encode())


def log_exception(rank: int) -> None:
    """Log the exception that is being handled with its traceback, as the package does before it reports it."""
    if os.environ.get("TTP_LOG_STDOUT") == "1":
        os.write(1, f"rank:{rank} catch other exception\n{traceback.format_exc()}".encode())
