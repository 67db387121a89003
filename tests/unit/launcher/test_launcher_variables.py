"""Variables, sessions and helpers of a start: what a rank gets, and what it may not leave behind."""

from __future__ import annotations

import os
import shlex
import signal
import time
from pathlib import Path

import pytest

from tests.rigs.ipv6 import without_ipv6
from tests.rigs.trainer_container import Container, running
from trainer_sidecar.launcher.variables import merge_variables

SHOW = """
import os
print("session", os.getsid(0) == os.getpid(), "type", os.environ["RESTART_FAULT_PROCESS_TYPE"], flush=True)
"""
LEAVING = """
import os, subprocess, sys, time
chip = open(sys.argv[1])
free = subprocess.Popen(["sleep", "1000"], start_new_session=True, stdout=subprocess.DEVNULL)
held = subprocess.Popen(["sleep", "1001"], start_new_session=True, stdout=subprocess.DEVNULL, pass_fds=[chip.fileno()])
print("helpers", free.pid, held.pid, flush=True)
sys.exit(int(sys.argv[2]))
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def started(pod: Container, start: int = 0, **environment: str) -> None:
    pod.launched()
    pod.register()
    pod.start_ranks(start, **environment)


ORDER = {"HCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo", "POD_IP": "10.0.0.7"}


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ({}, {"HCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo"}),
        ({"GLOO_SOCKET_IFNAME": "ib0"}, {"HCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "ib0"}),
        ({"HCCL_IF_IP": "10.0.0.7"}, {"HCCL_IF_IP": None, "HCCL_SOCKET_IFNAME": "lo"}),
        ({"HCCL_SOCKET_IFNAME": "ib0", "HCCL_IF_IP": "10.0.0.7"}, {"HCCL_SOCKET_IFNAME": "ib0", "HCCL_IF_IP": None}),
        ({"HCCL_SOCKET_IFNAME": "ib0", "HCCL_IF_IP": "10.9.9.9"}, {"HCCL_IF_IP": "10.9.9.9"}),
    ],
)
def test_the_network_is_the_users_where_chosen(call: dict[str, str], expected: dict[str, str | None]) -> None:
    made = merge_variables(call, ORDER, is_restart=False)
    assert {name: made.environment.get(name) for name in expected} == expected
    assert made.notes == []


@pytest.mark.parametrize(
    ("address", "found"),
    [("127.0.0.1", "lo"), ("10.0.0.7", None), pytest.param("::1", "lo", marks=without_ipv6), ("no address", None)],
)
def test_unchosen_it_is_the_interface_of_the_pods_address(address: str, found: str | None) -> None:
    made = merge_variables({"HCCL_IF_IP": address}, {"POD_IP": address}, is_restart=False)
    assert {made.environment.get(f"{library}_SOCKET_IFNAME") for library in ("HCCL", "GLOO")} == {found}
    assert made.environment["HCCL_IF_IP"] == address
    assert made.notes == []


@pytest.mark.parametrize(("address", "taken"), [("127.0.0.1", "lo"), ("10.0.0.7", None)])
def test_a_missing_interface_counts_as_none_and_is_told(address: str, taken: str | None) -> None:
    made = merge_variables({}, {"GLOO_SOCKET_IFNAME": "eth77", "POD_IP": address}, is_restart=False)
    assert made.environment.get("GLOO_SOCKET_IFNAME") == taken
    (note,) = made.notes
    assert "no network interface eth77 (spec.network.interface) for GLOO_SOCKET_IFNAME" in note
    assert (f"{taken} is taken" if taken else "it is left out") in note


@pytest.mark.parametrize(
    ("choice", "hccl", "gloo"),
    [
        ("=lo", "=lo", "lo"),
        ("=l", None, None),
        ("l,eth77", "l,eth77", None),
        ("eth77,lo", "eth77,lo", "lo"),
        ("^docker", "^docker", None),
    ],
)
def test_a_choice_is_read_as_hccl_and_gloo_read_it(choice: str, hccl: str | None, gloo: str | None) -> None:
    order = {"HCCL_SOCKET_IFNAME": choice, "GLOO_SOCKET_IFNAME": choice, "POD_IP": "10.0.0.7"}
    made = merge_variables({}, order, is_restart=False).environment
    assert (made.get("HCCL_SOCKET_IFNAME"), made.get("GLOO_SOCKET_IFNAME")) == (hccl, gloo)


def test_a_restarted_rank_waits_for_no_mates(tmp_path: Path) -> None:
    with running(tmp_path, "torchrun show.py", ranks=1) as pod:
        (pod.home / "show.py").write_text(SHOW + "import sys; sys.exit(1)")
        started(pod)
        pod.until(lambda: "session True type pod" in pod.log(), "the first start")
        pod.until(lambda: pod.rank(0).get("running") is False, "its end")
        pod.start_ranks(1)
        pod.until(lambda: "session True type worker" in pod.log(), "the second start")


@pytest.mark.parametrize(("code", "free_lives"), [(1, False), (0, True)])
def test_helpers_that_hold_a_chip_end_with_their_rank(tmp_path: Path, code: int, *, free_lives: bool) -> None:
    chip = tmp_path / "davinci0"
    chip.touch()
    with running(
        tmp_path, f"torchrun leave.py {shlex.quote(str(chip))} {code}", ranks=1, HAJOB_CHIP_DEVICES=str(chip)
    ) as pod:
        (pod.home / "leave.py").write_text(LEAVING)
        started(pod)
        pod.until(lambda: "helpers" in pod.log(), "the helpers")
        free, held = map(int, pod.log().split("helpers ")[1].split()[:2])
        pod.until(lambda: pod.rank(0).get("running") is False, "the end of the rank")
        pod.until(lambda: not alive(held), "the end of what holds the chip")
        pod.until(lambda: "behind, they are ended with it" in pod.log(), "the launcher's word of it")
        pod.until(lambda: alive(free) is free_lives, "the other one")
        if free_lives:
            os.kill(free, signal.SIGKILL)


def test_a_pod_ends_in_its_grace_though_nobody_listens(tmp_path: Path) -> None:
    with running(tmp_path, "trap '' TERM; torchrun deaf.py | tee log; sleep 1000", ranks=1) as pod:
        deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(1000)"
        (pod.home / "deaf.py").write_text(deaf)
        started(pod)
        pod.until(lambda: "deaf" in pod.log(), "the rank")
        began = time.monotonic()
        assert pod.launcher is not None
        pod.launcher.send_signal(signal.SIGTERM)
        assert pod.launcher.wait(20) == 143
        assert time.monotonic() - began < 15
        assert not alive(pod.rank(0)["pid"])


@pytest.mark.parametrize(
    ("script", "ours", "expected", "idle"),
    [
        ("{TTP:1,UCE:1}", "{TTP:1,UCE:1,ARF:1}", "{TTP:1,UCE:1,ARF:1}", ""),
        ("{TTP: 1, TRE:2, TSP:1}", "{TTP:1,ARF:1}", "{TTP:1,ARF:1,TRE:2,TSP:1}", ""),
        ("{TTP:1,UCE:1,ARF:0}", "{TTP:1}", "{TTP:1}", "UCE:1"),
        ("{ATO:1,ATO_THRESHOLD:20}", "{TTP:1}", "{TTP:1}", "ATO:1,ATO_THRESHOLD:20"),
        ("TRE:1", "{}", "{TRE:1}", ""),
        ("", "{TTP:1}", "{TTP:1}", ""),
    ],
)
def test_mindspores_own_switches_are_kept_or_named(script: str, ours: str, expected: str, idle: str) -> None:
    made = merge_variables({"MS_ENABLE_TFT": script}, {"MS_ENABLE_TFT": ours}, is_restart=False)
    assert made.environment["MS_ENABLE_TFT"] == expected
    assert [f"MS_ENABLE_TFT {idle} of the" in note for note in made.notes] == ([True] if idle else [])


def test_without_mindspore_its_switches_stay_as_they_are() -> None:
    made = merge_variables({"MS_ENABLE_TFT": "{ATO:1}"}, {}, is_restart=False)
    assert (made.environment["MS_ENABLE_TFT"], made.notes) == ("{ATO:1}", [])
