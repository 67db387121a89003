"""Mutation testing of the decision core: change the code a little, and see whether a test notices.

mutmut wants sources below `src` and a directory of its own, so both are made in a scratch directory; nothing in the
checkout is touched. The walk over the whole table is left out, because it alone takes half a minute for each mutant;
so are the tests of pages, because a mutated source is another text.
Run as `python -m e2e.bench.mutants [MODULE ...]`; survivors are explained in docs/internals/mutants.md.
"""

import argparse
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
MODULES: Final = ("domain", "plan")
TESTS: Final = ("domain", "plan", "cli")
LEFT_OUT: Final = ("plan/table.py", "plan/preconditions.py")
"""Tables: no function of theirs decides anything."""
_FIRST: Final = "hajob.domain.text.x_last_lines__mutmut_1"
EXAMPLES: Final = 40
"""Random examples of each property; enough for a mutant, and a quarter of the time."""
_CONFIG: Final = """
[tool.mutmut]
source_paths = ["src/hajob"]
only_mutate = {only}
do_not_mutate = {left_out}
pytest_add_cli_args = ["-p", "no:cacheprovider", "-q"]
pytest_add_cli_args_test_selection = ["tests/unit"]
also_copy = ["tests"]
[tool.pytest.ini_options]
addopts = [
  "--import-mode=prepend", "--hypothesis-profile=ci", "--ignore=tests/unit/plan/test_table.py",
  "-k", "not page and not has_its_line",
]
asyncio_mode = "auto"
"""


def prepare(scratch: Path, modules: Sequence[str]) -> None:
    """Lay out what mutmut expects."""
    shutil.copytree(
        ROOT / "operator" / "hajob", scratch / "src" / "hajob", ignore=shutil.ignore_patterns("__pycache__")
    )
    for concept in TESTS:
        source, target = ROOT / "tests" / "unit" / concept, scratch / "tests" / "unit" / concept
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        for path in target.glob("test_*.py"):
            text = path.read_text(encoding="utf-8")
            path.write_text(re.sub(r"max_examples=\d+", f"max_examples={EXAMPLES}", text), encoding="utf-8")
    only = [f"src/hajob/{module}{'' if module.endswith('.py') else '/*'}" for module in modules]
    left_out = [f"src/hajob/{module}" for module in LEFT_OUT]
    text = _CONFIG.format(only=only, left_out=left_out)
    (scratch / "pyproject.toml").write_text(text, encoding="utf-8")


def mutmut(scratch: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run mutmut in the scratch directory."""
    command = [sys.executable, "-m", "mutmut", *arguments]
    return subprocess.run(command, cwd=scratch, text=True, check=False, stdout=subprocess.PIPE)


def sample(scratch: Path, count: int, seed: int) -> list[str]:
    """Names of `count` mutants at random; mutmut makes them all when it is asked for any."""
    mutmut(scratch, "run", "--max-children", "1", _FIRST)
    names: list[str] = []
    for path in sorted((scratch / "mutants").rglob("*.meta")):
        names += json.loads(path.read_text(encoding="utf-8"))["exit_code_by_key"]
    return random.Random(seed).sample(names, min(count, len(names)))


def report(scratch: Path) -> int:
    """Print how many were killed, and every survivor with its change."""
    listing = mutmut(scratch, "results", "--all", "True").stdout
    results = re.findall(r"^\s*(\S+__mutmut_\d+): (.+)$", listing, re.MULTILINE)
    counts = Counter(state for _, state in results)
    for name, state in results:
        if state in {"survived", "no tests"}:
            shown = mutmut(scratch, "show", name).stdout.splitlines()
            change = [line for line in shown if re.match(r"[-+](?![-+])", line)]
            print(name, *change, sep="\n    ")
    decided = counts["killed"] + counts["timeout"] + counts["survived"] + counts["no tests"]
    killed = counts["killed"] + counts["timeout"]
    print(dict(counts))
    print(f"killed {killed} of {decided}: {100 * killed / max(1, decided):.1f} %")
    return 0 if decided and killed >= 0.9 * decided else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Mutate, test, report; exit code 1 below 90 %."""
    parser = argparse.ArgumentParser(description="mutation testing of hajob.domain and hajob.plan")
    parser.add_argument(
        "modules", nargs="*", default=MODULES, help="domain plan, or single files such as plan/choice.py"
    )
    parser.add_argument("--children", type=int, default=2, help="processes (2)")
    parser.add_argument(
        "--only", nargs="*", default=[], help="names of mutants, or patterns such as 'hajob.plan.recovery*'"
    )
    parser.add_argument("--sample", type=int, default=0, help="only so many, chosen at random (0: all)")
    parser.add_argument("--seed", type=int, default=4, help="of the sample (4)")
    parser.add_argument("--directory", type=Path, help="work there and keep it; by default a temporary directory")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="hajob-mutants-") as temporary:
        scratch = chosen.directory or Path(temporary)
        scratch.mkdir(parents=True, exist_ok=True)
        prepare(scratch, chosen.modules)
        names = chosen.only or (sample(scratch, chosen.sample, chosen.seed) if chosen.sample else [])
        done = mutmut(scratch, "run", "--max-children", str(chosen.children), *names)
        if done.returncode:
            print(done.stdout[-4000:], file=sys.stderr)
        return report(scratch)


if __name__ == "__main__":
    sys.exit(main())
