"""One revision's side of a comparison: plays sections of the benchmark as it is told, on one cluster.

`e2e.bench.against` starts it in this checkout and, after putting a copy of this file there, in that of another
revision. So it uses only what the benchmark has had in every revision: `e2e.bench.__main__` with `parse`, `SECTIONS`
and `Bench`, and `e2e.bench.report.row`, through which all figures go.

Told on standard input, a JSON object a line: {"section": name, "rounds": number}. Answers on standard output, a line
for each: {"values": {figure: [numbers]}, "units": {figure: unit}, "problems": [words]}. It ends with its input.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterable
from typing import Any

from e2e.bench import report


class KeptValues:
    """Keeps the single values behind each row: rows themselves hold quantiles only.

    Attributes:
        values: by the row's name.
        units: by the row's name.
    """

    def __init__(self) -> None:
        self.values: dict[str, list[float]] = {}
        self.units: dict[str, str] = {}
        self._row = report.row

    def row(self, name: str, unit: str, values: Iterable[float], limit: report.Limit | None = None) -> report.Row:
        """Stand in for `report.row`."""
        kept = list(values)
        self.values[name], self.units[name] = kept, unit
        return self._row(name, unit, kept, limit)


def main() -> int:
    """Play until nothing more is asked for."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a section prints is progress and no answer
    kept = KeptValues()
    report.row = kept.row  # before the sections, which import it by name
    from e2e.bench import __main__ as benchmark
    from e2e.cluster.run import Run

    with Run.start("a comparison of two revisions") as run:
        bench = benchmark.Bench(run, benchmark.parse([]))
        for line in sys.stdin:
            told = json.loads(line)
            kept.values, kept.units, bench.problems = {}, {}, []
            if told["section"] in benchmark.SECTIONS:
                number = str(told["rounds"])
                arguments = ["--only", told["section"], "--rounds", number, "--pairs", number]
                bench.chosen = benchmark.parse(arguments)
                bench.measure()
                remove_trainings(bench)
            else:
                bench.problems = [f"{told['section']}: not a section of this revision's benchmark"]
            answer = {"values": kept.values, "units": kept.units, "problems": bench.problems}
            answers.write(json.dumps(answer) + "\n")
    return 0


def remove_trainings(bench: Any) -> None:  # noqa: ANN401 - the other revision's `Bench`
    """Remove what trainings left on disk: the next turn's have the same names, and would go on in these logs."""
    rig = bench._rig
    left = [*bench.run.directory.glob("without-*")]
    if rig is not None:
        left += (rig.directory / "volumes").glob("*")
    for directory in left:
        shutil.rmtree(directory)


if __name__ == "__main__":
    sys.exit(main())
