"""The package's face: the names a training framework imports, and the frames a gate reads."""

from __future__ import annotations

import inspect

import mindio_ttp.controller_ttp as controller
import mindio_ttp.framework_ttp as framework
import pytest
from mindio_ttp import _decorator, _settings, _wire, utils
from mindio_ttp._names import ReportState
from mindio_ttp._processor import Options, Processor, registered

TRAINER = """
tft_init_processor tft_start_processor tft_destroy_processor tft_is_reboot_node tft_get_reboot_type
tft_set_optimizer_replica tft_set_dp_group_info tft_start_updating_os tft_end_updating_os tft_start_copy_os
tft_set_step_args tft_exception_handler tft_report_error tft_wait_next_action tft_pause_train tft_get_repair_step
tft_get_repair_type tft_report_load_ckpt_step tft_reset_limit_step tft_register_exception_handler
tft_register_decrypt_handler tft_register_stop_handler tft_register_clean_handler tft_register_repair_handler
tft_register_rollback_handler tft_register_rebuild_group_handler tft_register_save_ckpt_handler
tft_register_rename_handler tft_register_stream_sync_handler tft_register_exit_handler
tft_register_zit_downgrade_rebuild_handler tft_register_zit_upgrade_rebuild_handler
tft_register_zit_upgrade_repair_handler tft_register_zit_upgrade_rollback_handler tft_can_do_uce_repair
set_mindio_export_version ReportState RepairType Action OptimizerType
tft_init_controller tft_start_controller tft_destroy_controller
"""
PROCESSOR = "rank world_size enable_local_copy enable_tls tls_info enable_uce enable_arf enable_zit"
NOTIFY = "stop_train on_global_rank prepare_action change_strategy dump"


def test_names_of_the_trainers_side() -> None:
    assert not [name for name in TRAINER.split() if not hasattr(framework, name)]


def test_names_of_the_controllers_side() -> None:
    names = {f"tft_notify_controller_{name}" for name in NOTIFY.split()}
    names |= {"tft_register_mindx_callback", "tft_query_high_availability_switch"}
    assert set(controller.__all__) == names
    assert hasattr(controller, "tft_init_controller")


def test_names_of_utils() -> None:
    assert utils.tft_set_update_start_time
    assert utils.tft_set_update_end_time


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        (
            framework.tft_init_processor,
            "rank world_size enable_local_copy enable_tls tls_info enable_uce enable_arf enable_zit",
        ),
        (framework.tft_start_processor, "master_ip port local_ip"),
        (controller.tft_init_controller, "rank world_size enable_local_copy enable_arf enable_zit"),
        (controller.tft_start_controller, "bind_ip port enable_tls tls_info"),
        (controller.tft_notify_controller_stop_train, "fault_ranks stop_type timeout"),
        (controller.tft_notify_controller_on_global_rank, "fault_ranks time"),
        (controller.tft_notify_controller_change_strategy, "strategy params"),
        (controller.tft_notify_controller_prepare_action, "action fault_ranks"),
    ],
)
def test_signatures(function: object, parameters: str) -> None:
    assert list(inspect.signature(function).parameters) == parameters.split()  # type: ignore[arg-type]


def test_heartbeat_is_56_bytes_with_the_step_at_8() -> None:
    body = _wire.Heartbeat(3, 1, 42, code="1234abcd").pack()
    assert len(body) == 56
    assert int.from_bytes(body[8:16], "little") == 42
    assert _wire.Heartbeat.unpack(body).code == "1234abcd"


def test_an_orderly_end_is_a_heartbeat_with_the_last_step(monkeypatch: pytest.MonkeyPatch) -> None:
    processor = Processor(Options(rank=3, world_size=8, local_copy=False, uce=True, arf=True, zit=False))
    sent: list[bytes] = []
    monkeypatch.setattr(processor.client, "send", sent.append)
    processor.end_update(300)
    processor.destroy()
    ((kind, _, _, body),) = _wire.FrameReader().feed(b"".join(sent))
    beat = _wire.Heartbeat.unpack(body)
    assert (kind, beat.rank, beat.step, beat.ended, body[16]) == (_wire.Message.HEARTBEAT, 3, 300, True, 11)


def test_frames_are_cut_wherever_the_bytes_break() -> None:
    data = _wire.frame(3, b"abc") + _wire.frame(0, b"") + _wire.frame(9, b"xy")
    reader = _wire.FrameReader()
    found = [frame for i in range(len(data)) for frame in reader.feed(data[i : i + 1])]
    assert [(kind, body) for kind, _, _, body in found] == [(3, b"abc"), (0, b""), (9, b"xy")]


def test_an_impossible_length_is_an_error() -> None:
    with pytest.raises(ValueError, match="bytes"):
        list(_wire.FrameReader().feed(_wire.HEADER.pack(3, 0, 1 << 30, 0, 0)))


@pytest.mark.parametrize(
    ("text", "uce", "state"),
    [
        ("UCE ERROR x", True, ReportState.RS_UCE),
        ("UCE ERROR x", False, ReportState.RS_UNKNOWN),
        ("FORCE STOP", False, ReportState.RS_NORMAL),
        ("ARF FINISH", True, ReportState.RS_PREREPAIR_FINISH),
        ("STEP FINISH", True, ReportState.RS_STEP_FINISH),
        ("HCCL OP RETRY FAILED", True, ReportState.RS_HCCL_FAILED),
        ("HCCS LINK ERROR", False, ReportState.RS_UNKNOWN),
        ("HBM MULTI BIT ECC", True, ReportState.RS_UCE_CORRUPTED),
        ("HBM MULTI BIT ECC time us=30", True, ReportState.RS_UCE),
        ("HBM MULTI BIT ECC time us=5", True, ReportState.RS_UCE_CORRUPTED),
        ("out of memory", True, ReportState.RS_UNKNOWN),
    ],
)
def test_state_of_a_text(text: str, uce: bool, state: ReportState) -> None:
    utils.tft_set_update_start_time(10)
    utils.tft_set_update_end_time(20)
    assert _decorator.state_of(text, uce=uce) is state


def test_a_registered_pattern_comes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registered, "exceptions", [])
    framework.tft_register_exception_handler("ODD", "RS_HCCL_FAILED", lambda _: "RS_RETRY")
    assert _decorator.state_of("something ODD", uce=True) is ReportState.RS_RETRY
    assert _decorator.state_of("ODD but FORCE STOP", uce=True) is ReportState.RS_NORMAL


@pytest.mark.parametrize(("value", "seconds"), [("5", 5), ("0", 30), ("3601", 30), ("x", 30), ("3600", 3600)])
def test_window(monkeypatch: pytest.MonkeyPatch, value: str, seconds: int) -> None:
    monkeypatch.setenv("MINDIO_WAIT_MINDX_TIME", value)
    assert _settings.mindx_wait_seconds() == seconds


@pytest.mark.parametrize(("value", "seconds"), [("30", 30), ("29", 180), ("1800", 1800), ("1801", 180), ("", 180)])
def test_action_limit(monkeypatch: pytest.MonkeyPatch, value: str, seconds: int) -> None:
    monkeypatch.setenv("TTP_NORMAL_ACTION_TIME_LIMIT", value)
    assert _settings.action_seconds() == seconds
