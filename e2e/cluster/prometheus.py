"""A real Prometheus that scrapes operators of a local cluster and evaluates the rules of the chart."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import yaml

from e2e.bootstrap.binaries import locate
from e2e.bootstrap.paths import CHECKOUT
from e2e.cluster.run import Run, free_port

RULES: Final = CHECKOUT / "charts/hajob/files/alerts/rules.yaml"
READY_SECONDS: Final = 30.0
LOOK_SECONDS: Final = 0.1
Sample = tuple[Mapping[str, str], float]
Series = tuple[Mapping[str, str], list[tuple[float, float]]]


class PrometheusError(RuntimeError):
    """It does not start, or refuses a query; the message has its words."""


def rules_without_delay() -> dict[str, Any]:
    """The chart's rules, each firing as soon as its expression holds: `for` is promtool's to try."""
    rules: dict[str, Any] = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    for rule in rules["groups"][0]["rules"]:
        rule.pop("for", None)
    return rules


class Prometheus:
    """One that runs as long as its block.

    Args:
        run: That its process is of.
        directory: Where it writes.
        targets: `address:port` of the operators.
    """

    def __init__(self, run: Run, directory: Path, targets: Sequence[str]) -> None:
        self._run, self._directory, self._targets = run, directory, targets
        self._process: subprocess.Popen[bytes] | None = None
        self._url = ""

    def __enter__(self) -> Self:
        """Start it, and wait until it serves."""
        self._directory.mkdir(parents=True, exist_ok=True)
        rules = self._directory / "rules.yaml"
        rules.write_text(yaml.safe_dump(rules_without_delay()), encoding="utf-8")
        # As the chart's monitors have it: jobs have labels of their own names.
        scraped = {
            "job_name": "hajob-operator",
            "honor_labels": True,
            "static_configs": [{"targets": list(self._targets)}],
        }
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(rules)],
            "scrape_configs": [scraped],
        }
        file = self._directory / "prometheus.yaml"
        file.write_text(yaml.safe_dump(config), encoding="utf-8")
        host = self._run.address(0, 1)
        address = f"{host}:{free_port(host, 9090)}"
        self._url = f"http://{address}"
        places = [f"--config.file={file}", f"--storage.tsdb.path={self._directory / 'data'}"]
        self._process = self._run.spawn(
            "prometheus", [locate("prometheus"), *places, f"--web.listen-address={address}"]
        )
        self._wait_until_ready()
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(timeout=20)

    def _wait_until_ready(self) -> None:
        end = time.monotonic() + READY_SECONDS
        while time.monotonic() < end:
            if self._process is not None and self._process.poll() is not None:
                break
            try:
                urllib.request.urlopen(f"{self._url}/-/ready", timeout=2).close()
            except OSError:
                time.sleep(LOOK_SECONDS)
            else:
                return
        raise PrometheusError((self._run.logs / "prometheus.log").read_text(errors="replace")[-2000:])

    def query(self, expression: str) -> list[Sample]:
        """What an expression is now: labels and value of each series.

        Raises:
            PrometheusError: it refuses the expression.
        """
        found = self._ask(f"query?{urllib.parse.urlencode({'query': expression})}")
        if found["resultType"] == "scalar":
            return [({}, float(found["result"][1]))]
        return [(one["metric"], float(one["value"][1])) for one in found["result"]]

    def query_range(self, expression: str, seconds: int) -> list[Series]:
        """What an expression has been for so long, once a second: labels, and time and value of each sample.

        Raises:
            PrometheusError: it refuses the expression.
        """
        now = int(time.time())
        asked = {"query": expression, "start": now - seconds, "end": now, "step": 1}
        found = self._ask(f"query_range?{urllib.parse.urlencode(asked)}")["result"]
        return [(one["metric"], [(at, float(value)) for at, value in one["values"]]) for one in found]

    def problems_of_targets(self) -> list[str]:
        """What keeps it from reading its targets, and warnings about what it reads."""
        return [one["lastError"] for one in self._ask("targets")["activeTargets"] if one["health"] != "up"]

    def firing(self) -> set[tuple[str, str]]:
        """Names of the alerts that fire now, each with its job; empty for one of no job."""
        found = self._ask("alerts")["alerts"]
        return {(one["labels"]["alertname"], one["labels"].get("job", "")) for one in found if one["state"] == "firing"}

    def _ask(self, path: str) -> Any:  # noqa: ANN401 - as the API has it
        try:
            with urllib.request.urlopen(f"{self._url}/api/v1/{path}", timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise PrometheusError(error.read().decode(errors="replace")) from None
