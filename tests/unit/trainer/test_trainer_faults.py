import socket
from pathlib import Path

import pytest

from e2e.trainer.faults import Fault, Faults
from e2e.trainer.relay import Relay


def faults(directory: Path, *lines: str, rank: int = 2) -> Faults:
    return Faults(rank, directory, lines)


def test_fault_meets_its_rank_moment_and_step_once(tmp_path: Path) -> None:
    one = faults(tmp_path, "rank=2 step=5 at=update do=raise text=UCE_ERROR")
    for moment, step in (("update", 4), ("forward", 5)):
        one.at(moment, step)
    with pytest.raises(RuntimeError, match="UCE ERROR"):
        one.at("update", 5)
    one.at("update", 5)
    faults(tmp_path, "rank=2 step=5 at=update do=raise text=UCE_ERROR").at("update", 6)


def test_fault_of_every_process_and_time(tmp_path: Path) -> None:
    one = faults(tmp_path, "step=5 do=raise always=1")
    for _ in range(2):
        with pytest.raises(RuntimeError):
            one.at("forward", 5)


def test_fault_without_a_rank_meets_every_rank_once(tmp_path: Path) -> None:
    for rank in (0, 1):
        with pytest.raises(RuntimeError):
            faults(tmp_path, "step=5 do=raise", rank=rank).at("forward", 5)
        faults(tmp_path, "step=5 do=raise", rank=rank).at("forward", 5)


def test_file_is_read_while_the_training_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = faults(tmp_path)
    one.look()
    (tmp_path / "faults").write_text("rank=2 do=nan\nrank=two\n")
    one.look()
    one.at("forward", 7)
    assert "loss: nan" in capsys.readouterr().out


@pytest.mark.parametrize("line", ["do=dance", "at=dawn do=kill", "colour=red"])
def test_line_that_is_not_understood_is_named(line: str) -> None:
    with pytest.raises(ValueError, match="fault"):
        Fault.parse(line)


def test_time_in_a_text_is_now(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"time us=\d{16}"):
        faults(tmp_path, "do=raise text=HBM_MULTI_BIT_ECC_time_us=NOW").at("forward", 1)


def test_a_fault_written_before_the_start_meets_its_point(tmp_path: Path) -> None:
    (tmp_path / "faults").write_text("rank=2 step=7 at=startup do=raise after=0.001")
    with pytest.raises(RuntimeError):
        faults(tmp_path).at("startup")
    assert Fault.parse("rank=2 step=7 at=startup do=raise after=0.001").mark(tmp_path, 2).exists()


def test_nonsense_is_answered_once_and_the_moment_itself_passes(tmp_path: Path) -> None:
    one = faults(tmp_path, "rank=2 at=clean do=nonsense", "rank=2 at=repair do=nonsense answer=text")
    one.at("clean")
    assert [one.answer("clean", 0), one.answer("clean", 0)] == [17, 0]
    assert [one.answer("repair"), one.answer("repair"), one.answer("rollback")] == ["nonsense", None, None]
    with pytest.raises(ValueError, match="answer= is one of"):
        Fault.parse("do=nonsense answer=maybe")


def test_a_rank_is_muted_where_a_relay_is_in_the_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, calls = faults(tmp_path, "do=mute always=1"), list[str]()
    one.at("forward", 1)
    assert "without TOY_RELAY=1" in capsys.readouterr().out
    one.mute = lambda: calls.append("muted")
    one.at("forward", 2)
    assert calls == ["muted"]


def test_a_relay_swallows_heartbeats_and_nothing_else() -> None:
    beat, other = b"\x03\x00" + bytes(2) + b"\x02" + bytes(11) + b"hi", b"\x09" + bytes(15)
    with socket.create_server(("127.0.0.1", 0)) as controller:
        relay = Relay("127.0.0.1", *controller.getsockname()[:2])
        with socket.create_connection(relay.address) as rank, controller.accept()[0] as link:
            rank.sendall(bytes(16) + beat)
            assert link.recv(34, socket.MSG_WAITALL) == bytes(16) + beat
            relay.mute()
            rank.sendall(beat + other)
            assert link.recv(16, socket.MSG_WAITALL) == other
            link.sendall(b"go on")
            assert rank.recv(5, socket.MSG_WAITALL) == b"go on"
            link.shutdown(socket.SHUT_RDWR)
            assert rank.recv(1) == b""
