"""Command lines of torchrun and msrun, read as the tools read them."""

from __future__ import annotations

import pytest

from trainer_sidecar.launcher.program import (
    ProgramError,
    ShimCall,
    Size,
    mindspore_environment,
    parse_call,
    program_of_rank,
)

SIZE = Size(node_rank=1, ranks_per_node=8, world_size=32)


def call(tool: str, *arguments: str, **environment: str) -> ShimCall:
    return ShimCall(tool, list(arguments), "/work", environment, "/usr/bin/python3")


@pytest.mark.parametrize(
    ("arguments", "argv"),
    [
        (["train.py"], ["/usr/bin/python3", "-u", "train.py"]),
        (["--nproc_per_node", "8", "train.py", "--lr", "1"], ["/usr/bin/python3", "-u", "train.py", "--lr", "1"]),
        (
            ["--nproc-per-node=8", "-m", "pkg.train", "-m", "x"],
            ["/usr/bin/python3", "-u", "-m", "pkg.train", "-m", "x"],
        ),
        (["--no-python", "./train.sh", "a"], ["./train.sh", "a"]),
        (["--nnodes", "4", "--node_rank", "1", "--rdzv_backend=c10d", "t.py"], ["/usr/bin/python3", "-u", "t.py"]),
        (["--master_addr", "node-0", "--master-port", "6000", "t.py"], ["/usr/bin/python3", "-u", "t.py"]),
    ],
)
def test_torchrun(arguments: list[str], argv: list[str]) -> None:
    program = parse_call(call("torchrun", *arguments), SIZE)
    assert program.argv == argv
    assert program.notes == []
    assert program.cwd == "/work"


def test_options_of_the_script_are_the_scripts() -> None:
    program = parse_call(call("torchrun", "train.py", "--nproc-per-node", "3", "--", "-m"), SIZE)
    assert program.argv[2:] == ["train.py", "--nproc-per-node", "3", "--", "-m"]
    assert program.notes == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--nproc-per-node", "4"], "--nproc-per-node 4 is overridden by the job: 8"),
        (["--nnodes", "2"], "--nnodes 2 is overridden by the job: 4"),
        (["--nnodes", "1:3"], "--nnodes 1:3 is overridden by the job: 4"),
        (["--node-rank", "0"], "--node-rank 0 is overridden by the job: 1"),
        (["--standalone"], "--standalone is overridden by the job: 4 nodes"),
    ],
)
def test_what_contradicts_the_job_is_said(arguments: list[str], words: str) -> None:
    (note,) = parse_call(call("torchrun", *arguments, "train.py"), SIZE).notes
    assert words in note
    assert "node 1 of 4" in note


@pytest.mark.parametrize("size", ["8", "auto", "gpu"])
def test_what_agrees_is_not(size: str) -> None:
    assert parse_call(call("torchrun", "--nproc-per-node", size, "--nnodes", "1:4", "train.py"), SIZE).notes == []


def test_the_log_directory_of_msrun_has_an_effect() -> None:
    assert not any("log" in note for note in parse_call(call("msrun", "--log_dir=logs", "t.py"), SIZE).notes)


def test_threads_are_limited_unless_the_user_says_otherwise() -> None:
    assert parse_call(call("torchrun", "t.py"), SIZE).environment["OMP_NUM_THREADS"] == "1"
    assert parse_call(call("torchrun", "t.py", OMP_NUM_THREADS="4"), SIZE).environment["OMP_NUM_THREADS"] == "4"


def test_msrun() -> None:
    program = parse_call(
        call("msrun", "--worker_num=16", "--local_worker_num", "8", "--join=True", "t.py", "-c", "x"), SIZE
    )
    assert program.argv == ["/usr/bin/python3", "-u", "t.py", "-c", "x"]
    assert len(program.notes) == 1
    assert parse_call(call("msrun", "./run", "a"), SIZE).argv == ["/usr/bin/python3", "-u", "./run", "a"]
    assert parse_call(call("msrun", "pytest", "a"), SIZE).argv == ["pytest", "a"]
    assert parse_call(call("msrun", "--bind_numa=True", "t.py"), SIZE).environment == {"MS_TOPO_TIMEOUT": "600"}
    waits = parse_call(call("msrun", "--cluster_time_out", "300", "t.py"), SIZE)
    assert waits.environment == {"MS_TOPO_TIMEOUT": "300"}
    assert waits.detached
    assert not parse_call(call("msrun", "--join=True", "t.py"), SIZE).detached
    assert parse_call(call("msrun", "--join", "False", "t.py"), SIZE).detached
    assert parse_call(call("msrun", "--log_dir=logs", "t.py"), SIZE).log_directory == "/work/logs"


@pytest.mark.parametrize(
    ("tool", "arguments", "first"),
    [
        ("launch", ["t.py", "-c"], ["t.py", "--local-rank=3", "-c"]),
        ("launch", ["--use_env", "t.py", "-c"], ["t.py", "-c"]),
        ("launch", ["--nproc_per_node", "8", "-m", "pkg.t", "-c"], ["-m", "pkg.t", "--local-rank=3", "-c"]),
        ("torch_npu_run", ["--enable_tiered_parallel_tcpstore=true", "t.py"], ["t.py"]),
        ("torchrun", ["-r", "3", "--tee", "0", "t.py"], ["t.py"]),
    ],
)
def test_each_launcher_starts_a_rank_in_its_own_way(tool: str, arguments: list[str], first: list[str]) -> None:
    assert program_of_rank(parse_call(call(tool, *arguments), SIZE), "3").argv[2:] == first


def test_options_may_come_as_variables_as_with_torchrun() -> None:
    program = parse_call(call("torchrun", "pkg.t", PET_MODULE="1", PET_NPROC_PER_NODE="4"), SIZE)
    assert program.argv[2:] == ["-m", "pkg.t"]
    assert "--nproc-per-node 4 is overridden" in program.notes[0]
    assert parse_call(call("torchrun", "--nproc_per_node=8", "t.py", PET_NPROC_PER_NODE="4"), SIZE).notes == []


@pytest.mark.parametrize(
    ("tool", "option", "name"),
    [
        ("torchrun", "--log_dir=x", "torchrun --log-dir"),
        ("torchrun", "--max-restarts=3", "torchrun --max-restarts"),
        ("msrun", "--bind_core=True", "msrun --bind_core"),
        ("msrun", "--bind_numa=True", "msrun --bind_numa"),
    ],
)
def test_what_has_no_effect_is_said(tool: str, option: str, name: str) -> None:
    assert f"{name} has no effect under Hajob" in parse_call(call(tool, option, "t.py"), SIZE).notes


@pytest.mark.parametrize(
    ("tool", "option"),
    [
        ("torchrun", "--nproc-per-nod-e=8"),
        ("torchrun", "--use_env"),
        ("torchrun", "--virtual-local-rank"),
        ("launch", "--no-such"),
        ("torch_npu_run", "--enable_other"),
        ("msrun", "--sim_level=1"),
        ("msrun", "--nproc_per_node=8"),
        ("msrun", "--join=true"),
    ],
)
def test_an_option_that_cannot_be_followed_is_named(tool: str, option: str) -> None:
    with pytest.raises(ProgramError, match=option.partition("=")[0]):
        parse_call(call(tool, option, "t.py"), SIZE)


@pytest.mark.parametrize("arguments", [["--no-such", "t.py"], [], ["--nnodes"]])
def test_what_the_tool_would_refuse_is_refused(arguments: list[str]) -> None:
    with pytest.raises(ProgramError, match="torchrun: "):
        parse_call(call("torchrun", *arguments), SIZE)


def test_an_unknown_tool_is_named() -> None:
    with pytest.raises(ProgramError, match="mpirun"):
        parse_call(call("mpirun", "x"), SIZE)


def test_what_tells_workers_apart_wins_over_the_script() -> None:
    rank = {"RANK": "9", "LOCAL_RANK": "1", "GROUP_RANK": "4", "WORLD_SIZE": "32", "MASTER_PORT": "29500"}
    script = {"RANK_ID": "0", "DEVICE_ID": "0", "MS_NODE_ID": "0", "MS_SCHED_HOST": "10.0.0.1", "MS_ROLE": "MS_WORKER"}
    added = mindspore_environment({**rank, **script, "MASTER_ADDR": "10.0.0.2"})
    assert added == {
        "RANK_ID": "9",
        "RANK_SIZE": "32",
        "DEVICE_ID": "1",
        "MS_NODE_ID": "9",
        "MS_NODE_RANK": "4",
        "MS_WORKER_NUM": "32",
        "MS_SCHED_PORT": "29500",
    }
