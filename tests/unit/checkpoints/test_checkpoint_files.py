"""What files say of themselves, and what is done on a real disk."""

from __future__ import annotations

import io
import json
import pickle
import threading
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from e2e.trainer import checkpoint as toy
from hajob.domain.checkpoints import RefusalReason
from hajob.domain.layout import Layout
from tests.rigs.checkpoint_verdicts import carry_out_verdict
from tests.rigs.toy_trainer import save_toy_checkpoint
from trainer_sidecar.checkpoints import megatron, mindspore
from trainer_sidecar.checkpoints.directory import Directory
from trainer_sidecar.checkpoints.formats import CUT_OFF, look_into_file
from trainer_sidecar.checkpoints.verdict import Copy, Look, Verdict


class Marker:
    """A class of the framework, with a state of its own."""

    def __init__(self) -> None:
        self.iteration = 1


class Bomb:
    """Runs when it is unpickled the usual way."""

    path: ClassVar[Path]

    def __reduce__(self) -> tuple[Any, ...]:
        return (self.path.touch, ())


def torch_file(content: object) -> bytes:
    """As torch.save writes: a zip with a pickle and the tensors beside it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("model_optim_rng/data.pkl", pickle.dumps(content, protocol=2))
        archive.writestr("model_optim_rng/data/0", bytes(500))
    return buffer.getvalue()


def at(tmp_path: Path, name: str, content: bytes) -> Look:
    (tmp_path / name).write_bytes(content)
    return look_into_file(tmp_path / name)


def test_the_step_of_a_torch_file_is_read_and_nothing_in_it_runs(tmp_path: Path) -> None:
    state = {
        "args": Marker(),
        "bomb": Bomb(),
        "model": OrderedDict(weight=np.zeros(3), other={Marker(): 1}),
        "rng": [np.random.default_rng(1), {1, 2}],
        "iteration": 40,
    }
    Bomb.path = tmp_path / "bomb"
    assert at(tmp_path, "a.pt", torch_file(state)) == Look(step=40)
    assert not Bomb.path.exists()
    for odd in ([1], {"iteration": True}, {"iteration": "40"}, {}):
        assert at(tmp_path, "a.pt", torch_file(odd)) == Look()


def test_a_torch_file_that_is_cut_off_anywhere_is_seen(tmp_path: Path) -> None:
    content = torch_file({"iteration": 40})
    for length in range(len(content)):
        assert at(tmp_path, "a.pt", content[:length]) == CUT_OFF, length
    assert at(tmp_path, "a.pt", bytes(len(content))) == CUT_OFF
    assert at(tmp_path, "a.pt", b"\x80\x02anything") == Look()  # the format of long ago


def test_a_torch_file_whose_pickle_is_damaged_is_not_whole(tmp_path: Path) -> None:
    """The zip knows a checksum of each entry, and the pickle is read anyway."""
    content = torch_file({"iteration": 40, "model": {"name": "of a weight"}})
    start = content.index(b"\x80\x02")
    for damaged in range(start, content.index(b"PK", start)):
        broken = bytearray(content)
        broken[damaged] ^= 0xFF
        assert at(tmp_path, "a.pt", bytes(broken)) == CUT_OFF, damaged


def mindspore_file(checksum: bool = False) -> bytes:
    tensors = [b"w" * length for length in (3, 200, 40_000)]

    def length(number: int) -> bytes:
        return bytes([number & 0x7F | 0x80, *length(number >> 7)]) if number > 0x7F else bytes([number])

    content = b"".join(b"\x0a" + length(len(one)) + one for one in tensors)
    return content + (b"crc_num" + bytes(10) if checksum else b"")


@pytest.mark.parametrize("checksum", [True, False])
def test_a_mindspore_file_that_is_cut_off_is_seen(tmp_path: Path, checksum: bool) -> None:
    content = mindspore_file(checksum)
    assert at(tmp_path, "a.ckpt", content) == Look()
    whole = {5, 208, len(mindspore_file())}  # between two tensors nothing tells that there were more
    for length in [*range(300), *range(len(content) - 40, len(content))]:
        assert at(tmp_path, "a.ckpt", content[:length]).whole is (length in whole), length
    assert at(tmp_path, "a.ckpt", b"\xff" * 100) == CUT_OFF


def safetensors_file(**metadata: str) -> bytes:
    tensors = {"__metadata__": metadata, "w": {"dtype": "F32", "shape": [5], "data_offsets": [0, 20]}}
    header = json.dumps(tensors).encode()
    return len(header).to_bytes(8, "little") + header + bytes(20)


def test_a_safetensors_file_tells_that_it_lacks_what_others_hold(tmp_path: Path) -> None:
    assert at(tmp_path, "a.safetensors", safetensors_file(format="ms", remove_redundancy="True")) == Look(partial=True)
    assert at(tmp_path, "a.safetensors", safetensors_file(format="ms", remove_redundancy="False")) == Look()


def test_a_safetensors_file_that_is_cut_off_is_seen(tmp_path: Path) -> None:
    content = safetensors_file()
    assert at(tmp_path, "a.safetensors", content) == Look()
    for length in range(len(content)):
        assert at(tmp_path, "a.safetensors", content[:length]) == CUT_OFF, length
    for odd in (b"[]", b"{}{", b'{"w": 1}', b'{"w": {"data_offsets": [0]}}'):
        assert at(tmp_path, "a.safetensors", len(odd).to_bytes(8, "little") + odd + b"x") == CUT_OFF


LAYOUT = Layout(num_nodes=2, chips_per_node=2, tensor=2)


def test_what_the_toy_trainer_saves_is_checked_like_megatrons(tmp_path: Path) -> None:
    for step in (5, 10):
        save_toy_checkpoint(tmp_path, step)
    assert megatron.evaluate_megatron(Directory(tmp_path), LAYOUT) == Verdict("iter_0000010", 10, writes={})
    shard = tmp_path / "iter_0000010/mp_rank_01"
    whole = (shard / "model_optim_rng.pt").read_bytes()
    (shard / "model_optim_rng.pt").write_bytes((tmp_path / "iter_0000005/mp_rank_01/model_optim_rng.pt").read_bytes())
    assert megatron.evaluate_megatron(Directory(tmp_path), LAYOUT).refused[0].reason == RefusalReason.MIXED_STEPS
    (shard / "model_optim_rng.pt").write_bytes(whole[:-1])
    verdict = megatron.evaluate_megatron(Directory(tmp_path), LAYOUT)
    assert (verdict.step, verdict.refused[0].reason) == (5, RefusalReason.TRUNCATED_FILE)
    carry_out_verdict(tmp_path, verdict)
    assert toy.newest(tmp_path) == 5
    assert megatron.evaluate_megatron(Directory(tmp_path), LAYOUT).is_tracked


def test_files_of_one_checkpoint_are_read_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(4)  # four readers at once, or the test's own time limit

    def look(_path: Path) -> Look:
        together.wait(10)
        return Look(step=5)

    monkeypatch.setattr("trainer_sidecar.checkpoints.formats.look_into_file", look)
    found = dict(Directory(tmp_path).look_into_files(["a", "b", "c", "d"]))
    assert found == dict.fromkeys("abcd", Look(step=5))


def test_a_share_that_does_not_answer_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()

    def look(_path: Path) -> Look:
        answers.wait(30)
        return Look()

    monkeypatch.setattr("trainer_sidecar.checkpoints.formats.look_into_file", look)
    with pytest.raises(TimeoutError, match="reading 1 file took more than 0 s"):
        list(Directory(tmp_path, look_all_seconds=0.05).look_into_files(["a"]))
    answers.set()


def test_the_tracker_is_put_aside_where_nothing_is_left(tmp_path: Path) -> None:
    save_toy_checkpoint(tmp_path, 5)
    (tmp_path / "iter_0000005/mp_rank_00/distrib_optim.pt").write_bytes(b"")
    carry_out_verdict(tmp_path, megatron.evaluate_megatron(Directory(tmp_path), LAYOUT))
    assert toy.newest(tmp_path) is None
    assert (tmp_path / "latest_checkpointed_iteration.txt.refused").read_text() == "5"
    assert megatron.evaluate_megatron(Directory(tmp_path), LAYOUT).is_tracked


def test_files_are_copied_whole_or_not_at_all(tmp_path: Path) -> None:
    source = "checkpoint/rank_0/net_rank_0-5_1.ckpt"
    (tmp_path / source).parent.mkdir(parents=True)
    (tmp_path / source).write_bytes(mindspore_file())
    target = "checkpoint/rank_2/net_rank_2-5_1.ckpt"
    carry_out_verdict(
        tmp_path, Verdict("5_1", 5, copies=(Copy(source, target),), writes={"checkpoint/rank_2/meta.json": "{}"})
    )
    assert (tmp_path / target).read_bytes() == mindspore_file()
    assert sorted(path.name for path in (tmp_path / "checkpoint/rank_2").iterdir()) == [
        "meta.json",
        "net_rank_2-5_1.ckpt",
    ]
    with pytest.raises(OSError, match="rank_9"):
        carry_out_verdict(tmp_path, Verdict("5_1", 5, copies=(Copy("checkpoint/rank_9/x.ckpt", target),)))
    assert (tmp_path / target).read_bytes() == mindspore_file()


def test_a_whole_last_checkpoint_of_mindio_on_disk(tmp_path: Path) -> None:
    output = tmp_path / "output"
    for rank in range(2):
        for name in (f"checkpoint/rank_{rank}/net_rank_{rank}-5_1.ckpt",):
            (output / name).parent.mkdir(parents=True)
            (output / name).write_bytes(mindspore_file())
    (output / "strategy").mkdir()
    for rank in range(4):
        (output / f"strategy/ckpt_strategy_rank_{rank}.ckpt").write_bytes(b"x")
    for root, prefix in ((output, "checkpoint/"), (output / "checkpoint", "")):
        verdict = mindspore.evaluate_ranks(Directory(root), Layout(num_nodes=2, chips_per_node=2))
        assert verdict.step == 5
        assert [copy.target for copy in verdict.copies] == [
            f"{prefix}rank_{rank}/net_rank_{rank}-5_1.ckpt" for rank in (2, 3)
        ]
        carry_out_verdict(root, verdict)
        assert mindspore.evaluate_ranks(Directory(root), Layout(num_nodes=2, chips_per_node=2)).is_tracked
        for rank in (2, 3):
            (output / f"checkpoint/rank_{rank}/net_rank_{rank}-5_1.ckpt").unlink()


def test_other_files_and_missing_directories_are_no_checkpoints(tmp_path: Path) -> None:
    (tmp_path / "hajob-output").mkdir()
    (tmp_path / "hajob-output/iter_0000005").write_text("x")
    (tmp_path / "iter_0000005").mkdir()
    assert dict(Directory(tmp_path).sizes_of_files()) == {}
    assert dict(Directory(tmp_path / "missing").sizes_of_files()) == {}
    assert Directory(tmp_path).text_of_file("missing") is None
