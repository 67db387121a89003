"""However a script launches, its ranks are the launcher's; real shells, real pipes."""

from __future__ import annotations

import os
import resource
import shlex
import subprocess
import time
from pathlib import Path

import pytest

from tests.rigs.trainer_container import fake_tool, python_in, running
from trainer_sidecar.launcher.limits import ProcessLimits, read_limits

SHOWN = 300
"""Letters of a script's line that are shown at most: a home's path may be longer."""


@pytest.mark.parametrize(
    "launch",
    [
        "torchrun echo.py a",
        "python -m torch.distributed.run --nproc_per_node 2 echo.py a",
        "python3 -u -m torch.distributed.launch --use_env echo.py a",
        "python3 -m torch_npu.distributed.run echo.py a",
        "python3.99 -um torch.distributed.run echo.py a",
        "torch_npu_run --enable_tiered_parallel_tcpstore=true echo.py a",
        "msrun --worker_num=2 --local_worker_num=2 --join=True echo.py a",
        "bash -lc 'torchrun echo.py a'",
        "sh -c 'torchrun echo.py a'",
        "PATH=/usr/bin:/bin; torchrun echo.py a",
        "f() {{ export PATH=/usr/bin:/bin; torchrun echo.py a; }}; f",
        "(PATH=/usr/bin:/bin; python3 -m torch.distributed.run echo.py a)",
        "env FOO=1 timeout 60 torchrun echo.py a",
        "exec torchrun echo.py a",
        "source {venv}/bin/activate; torchrun echo.py a",
        "source {venv}/bin/activate; python -m torch.distributed.run echo.py a",
        "{venv}/bin/torchrun echo.py a",
        'python3 "$(which torchrun)" echo.py a',
        "set -euxo pipefail; torchrun echo.py a",
    ],
)
def test_every_way_to_launch_leads_to_the_launcher(tmp_path: Path, launch: str) -> None:
    venv = tmp_path / "venv"
    if launch.startswith("{venv}") and shlex.quote(str(venv)) != str(venv):
        pytest.skip("bash has no functions with such names; images have no such paths")
    fake_tool(venv / "bin", "torchrun")
    python_in(venv / "bin", "python")
    python_in(venv / "bin")
    python_in(venv / "bin", "python3.99")
    (venv / "bin" / "activate").write_text(f"export PATH={shlex.quote(str(venv))}/bin:$PATH\nhash -r\n")
    path = f"/usr/local/bin:/usr/bin:/bin:{venv}/bin"
    with running(tmp_path, launch.format(venv=shlex.quote(str(venv))), PATH=path) as pod:
        pod.launched()
        pod.register()
        pod.start_ranks()
        assert pod.ended() == 0
        assert "rank 1 args a" in pod.log()
        assert "REAL" not in pod.log()


def test_torch_distributed_launch_numbers_its_ranks(tmp_path: Path) -> None:
    with running(tmp_path, "python3 -m torch.distributed.launch --nproc_per_node 2 echo.py a") as pod:
        pod.launched()
        pod.register()
        pod.start_ranks()
        assert pod.ended() == 0
        assert "rank 1 args --local-rank=1 a" in pod.log()


def test_ranks_run_in_the_python_of_the_tool_called(tmp_path: Path) -> None:
    venv = tmp_path / "venv" / "bin"
    python_in(venv)
    fake_tool(venv, "torchrun").write_text(f"#!{venv}/python3\n")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "which.py").write_text("import sys; print('python', sys.executable)")
    with running(tmp_path, "torchrun which.py", PATH=f"{venv}:/usr/bin:/bin") as pod:
        pod.launched()
        pod.register()
        pod.start_ranks()
        assert pod.ended() == 0
        assert f"python {venv}/python3" in pod.log()


def test_ranks_find_nothing_of_the_shims(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "env.sh").write_text("#!/bin/bash\nenv | sort; type python3 torchrun; :\n")
    (tmp_path / "home" / "env.sh").chmod(0o755)
    with running(tmp_path, "torchrun --no-python ./env.sh", ranks=1, BASH_ENV="/own") as pod:
        pod.launched()
        pod.register()
        pod.start_ranks()
        assert pod.ended() == 0
        assert "BASH_ENV=/own" in pod.log()
        assert "BASH_FUNC_" not in pod.log()
        assert str(tmp_path / "shared" / "bin") not in pod.log()


def test_a_killed_shim_is_the_one_the_script_started(tmp_path: Path) -> None:
    script = "PATH=/usr/bin:/bin; torchrun echo.py & sleep 1; cat /proc/$!/cmdline | tr '\\0' ' '"
    with running(tmp_path, script) as pod:
        pod.launched()
        pod.until(lambda: "bin/torchrun echo.py" in pod.log(), "the shim's own number")


def test_any_other_python_runs_unchanged_at_once(tmp_path: Path) -> None:
    script = (
        "for i in $(seq 3); do python3 -c 'x=1' -m torch.distributed.run; done; "
        "python3 -c 'import sys; print(sys.argv, sys.executable)' a 'b c'"
    )
    venv = tmp_path / "venv"
    python_in(venv)
    with running(tmp_path, script, PATH=f"{venv}:/usr/bin:/bin") as pod:
        assert pod.ended() == 65
        assert f"['-c', 'a', 'b c'] {venv}/python3" in pod.log()
    true = fake_tool(tmp_path / "true", "python3", ":")
    path = {"PATH": f"{true.parent}:/usr/bin:/bin"}
    bare, wrapped = (processor_seconds(program, path) for program in (true, tmp_path / "shared" / "bin" / "python3"))
    assert wrapped - bare < 0.003


def processor_seconds(program: Path, environment: dict[str, str], count: int = 100) -> float:
    """Of one run: a busy machine makes it longer, but no dearer."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        ["sh", "-c", f"for i in $(seq {count}); do {shlex.quote(str(program))}; done"], check=True, env=environment
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / count


def test_a_launcher_of_the_image_is_named_with_its_line(tmp_path: Path) -> None:
    venv = tmp_path / "venv" / "bin"
    torchrun = shlex.quote(str(fake_tool(venv, "torchrun", "sleep 60")))
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "train.sh").write_text(f"# torchrun\necho begin\nenv {torchrun} --nproc_per_node 8 x.py\n")
    started = time.monotonic()
    with running(tmp_path, "train.sh", command=("bash",)) as pod:
        assert pod.ended() == 64
        assert time.monotonic() - started < 15
        problem = pod.script()["problem"]
        assert f"train.sh:3: env {torchrun} --nproc_per_node 8 x.py"[:SHOWN] in problem
        assert problem in pod.log()


def test_help_of_the_image_s_launcher_may_be_asked(tmp_path: Path) -> None:
    torchrun = shlex.quote(str(fake_tool(tmp_path / "venv", "torchrun", "sleep 3; echo HELP")))
    with running(tmp_path, f"env {torchrun} --help; echo went on") as pod:
        assert pod.ended() == 65
        assert "went on" in pod.log()


INHERITED = """
import os, resource
soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
stack = resource.getrlimit(resource.RLIMIT_STACK)[0]
mask = os.umask(0)
print("rank", os.environ["RANK"], soft, stack, oct(mask), sorted(os.sched_getaffinity(0)), flush=True)
"""


def test_ranks_inherit_what_the_script_has_limited(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "inherited.py").write_text(INHERITED)
    processor = min(os.sched_getaffinity(0))
    script = f"ulimit -Sn 777; ulimit -Ss 4096; umask 027; taskset -c {processor} torchrun inherited.py"
    with running(tmp_path, script) as pod:
        pod.launched()
        pod.register()
        pod.start_ranks()
        assert pod.ended() == 0
        assert f"rank 1 777 {4096 * 1024} 0o27 [{processor}]" in pod.log()


def test_processors_that_nobody_chose_are_not_fixed() -> None:
    told = {"resources": [], "umask": 0o22, "processors": sorted(os.sched_getaffinity(0))}
    assert read_limits(told).processors == ()
    assert read_limits({**told, "processors": [100_000]}).processors == (100_000,)


def test_a_limit_that_cannot_be_had_is_said_and_the_rank_runs() -> None:
    limits = ProcessLimits(((resource.RLIMIT_NOFILE, 100, 50),), None, (100_000,))
    refused = limits.adopt_limits()
    assert [text.partition(" of ")[0] for text in refused] == [f"limit {resource.RLIMIT_NOFILE}", "processors"]


@pytest.mark.parametrize(
    "launch",
    [
        'env -i PATH="$PATH" torchrun echo.py a',
        "HAJOB_DIR=/elsewhere torchrun echo.py a",
        "torchrun echo.py a >&-; echo rank 1 args a",
        "set -e; torchrun --help; python3 -m torch.distributed.run -h; torchrun echo.py a",
    ],
)
def test_odd_surroundings_still_lead_to_the_launcher(tmp_path: Path, launch: str) -> None:
    fake_tool(tmp_path / "image", "torchrun", "echo HELP $*")
    fake_tool(tmp_path / "image", "python3", 'case "$*" in *-h) echo HELP;; *) exec /usr/bin/python3 "$@";; esac')
    with running(tmp_path, launch, PATH=f"{tmp_path}/image:/usr/bin:/bin") as pod:
        pod.launched()
        pod.register()
        pod.start_ranks()
        assert pod.ended() == 0
        assert "rank 1 args a" in pod.log()


@pytest.mark.parametrize("command", ["python3 -m accelerate.commands.launch x.py", "python3 -m deepspeed x.py"])
def test_other_frameworks_launchers_are_named(tmp_path: Path, command: str) -> None:
    for name in ("accelerate/commands", "deepspeed"):
        (tmp_path / "home" / name).mkdir(parents=True)
    (tmp_path / "home" / "accelerate" / "commands" / "launch.py").write_text("import time; time.sleep(60)")
    (tmp_path / "home" / "deepspeed" / "__main__.py").write_text("import time; time.sleep(60)")
    with running(tmp_path, command) as pod:
        assert pod.ended() == 64
        assert command in pod.script()["problem"]


WITHOUT_SH = """
import os
real = os.access
os.access = lambda path, *rest, **more: path != "/bin/sh" and real(path, *rest, **more)
"""


@pytest.mark.parametrize(("script", "code", "told"), [("exit 127", 64, True), (":", 65, False)])
def test_an_image_without_a_sh_is_told_when_nothing_starts(
    tmp_path: Path, script: str, code: int, *, told: bool
) -> None:
    """bash says of `python` only that a file is not there."""
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_SH)
    with running(tmp_path, script, PYTHONPATH=str(tmp_path)) as pod:
        assert pod.ended() == code
        assert ("has no /bin/sh" in pod.script()["problem"]) is told
        assert ("has no /bin/sh" in pod.log()) is told
