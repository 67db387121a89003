"""The two boards for Grafana: the fleet, and one job; `charts/hajob/files/dashboards`.

Run as `python -m release.generate.dashboards [--check]`. Each query names no Prometheus: variable `datasource` does.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, TypeAlias

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as boards
from grafana_foundation_sdk.builders import prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from release.generate.alerts import ON_NODES, by_job
from release.generate.files import write_or_check

DIRECTORY: Final = "charts/hajob/files/dashboards"
_PROMETHEUS: Final = dashboard.DataSourceRef(type_val="prometheus", uid="${datasource}")
_PANEL: TypeAlias = timeseries.Panel | stat.Panel | table.Panel
ALL_COLUMNS: Final = 24
"""Width of a board in Grafana's own unit."""


VALUE: Final = "Value"
"""How Grafana calls the column with the values of a query; `Time` is that of the query."""
_JOB: Final = {"namespace": "namespace", "job": "job"}
_INCIDENTS: Final = {"action": "action", "outcome": "outcome", "code": "cause", VALUE: "incidents"}
_COUNTS: Final = ("", "h")
_LOW, _HIGH = 4, 8


class Plot(NamedTuple):
    """A panel.

    Attributes:
        title: of the panel.
        told: what it shows, and what is bad.
        queries: expression in PromQL, and the legend of its series.
        unit: as Grafana names it; empty: a number.
        shape: lines over time, stacked areas, one number now, or a table of what is now.
        columns: its width, of `ALL_COLUMNS`.
        headings: of a table's columns, by label, in their order; empty for the value: it is not shown.
        colours: of a number, from which value on; by default it has none, since Grafana's own is red from 80 on.
        words: in place of values.
        begins_at_zero: the axis does, even where no value is near.
        is_low: a table beside numbers is as low as they are.
    """

    title: str
    told: str
    queries: tuple[tuple[str, str], ...]
    unit: str = ""
    shape: Literal["lines", "stack", "number", "table"] = "lines"
    columns: int = 12
    headings: Mapping[str, str] = MappingProxyType({})
    colours: tuple[tuple[float | None, str], ...] = ((None, "text"),)
    words: Mapping[str, str] = MappingProxyType({})
    begins_at_zero: bool = True
    is_low: bool = False


class Row(NamedTuple):
    """Panels below one heading."""

    title: str
    plots: tuple[Plot, ...]


def _share_of_training(selector: str, window: str) -> str:
    """Return the share of the time on nodes that went into training."""
    seconds = "hajob_job_goodput_seconds_total"
    trained = f'sum(rate({seconds}{{{selector}bucket="Training"}}[{window}]))'
    return f"{trained} / sum(rate({seconds}{{{selector}{ON_NODES}}}[{window}]))"


def _quantile(share: float, histogram: str, window: str, label: str = "") -> str:
    labels = f"le, {label}" if label else "le"
    # Without the comparison every label that was never observed would have a line of nothing in the legend.
    return f"histogram_quantile({share}, sum by ({labels}) (increase({histogram}_bucket[{window}]))) >= 0"


_NOT_TRAINING: Final = 'hajob_job_goodput_seconds_total{bucket!~"Training|Suspended|Scheduling|WaitingForCapacity"}'

_IDLE_HOURS: Final = f"sum by (namespace, job) (increase({_NOT_TRAINING}[1d])) / 3600"
_IDLE_CHIP_HOURS: Final = f"{_IDLE_HOURS} * on (namespace, job) {by_job('hajob_job_chips')}"

FLEET: Final = (
    Row(
        "Jobs",
        (
            Plot(
                "Jobs by state",
                "What the jobs do.",
                (("count by (state) (max by (namespace, job, state) (hajob_job_state))", "{{state}}"),),
                shape="stack",
            ),
            Plot(
                "Goodput of the fleet",
                "Share of the time on nodes that went into training, over an hour.",
                ((_share_of_training("", "1h"), "all jobs"),),
                "percentunit",
            ),
            Plot(
                "Waiting jobs",
                "Jobs that hold no nodes, for how long and for what.",
                (("max by (namespace, job, reason) (hajob_job_waiting_seconds)", ""),),
                "s",
                "table",
                headings={**_JOB, "reason": "for", VALUE: "how long"},
            ),
            Plot(
                "Unprotected jobs, and why",
                "Preconditions of recovery that are missing; `kubectl hajob doctor JOB` says what to change.",
                (("max by (namespace, job, name) (hajob_job_unmet_precondition)", ""),),
                shape="table",
                headings={**_JOB, "name": "missing precondition"},
            ),
        ),
    ),
    Row(
        "Faults",
        (
            Plot(
                "Incidents a day, by action and outcome",
                "How often something was recovered, and by what.",
                (("sum by (action, outcome) (increase(hajob_incidents_total[1d])) > 0", "{{action}} {{outcome}}"),),
                shape="stack",
            ),
            Plot(
                "Incidents by cause",
                "Of the jobs that are there, since the operator's process began.",
                (("sum by (code, action, outcome) (hajob_job_incidents_total)", ""),),
                shape="table",
                headings=_INCIDENTS,
            ),
            Plot(
                "Outage by action",
                "Median and 95th percentile of a day, from the last common step to the first step after it.",
                (
                    (_quantile(0.5, "hajob_outage_seconds", "1d", "action"), "{{action}} p50"),
                    (_quantile(0.95, "hajob_outage_seconds", "1d", "action"), "{{action}} p95"),
                ),
                "s",
            ),
            Plot(
                "Outage by phase, an hour",
                "Where recoveries spend their time.",
                (("sum by (phase) (increase(hajob_job_outage_seconds_total[1h]))", "{{phase}}"),),
                "s",
                "stack",
            ),
            Plot(
                "Steps done again, an hour",
                "Steps that were lost with a checkpoint's age.",
                (("sum by (namespace, job) (increase(hajob_job_lost_steps_total[1h])) > 0", "{{namespace}}/{{job}}"),),
                shape="stack",
            ),
            Plot(
                "Chip-hours that did not train, a day",
                "Chips of a job times its time on nodes that was no training.",
                (
                    (
                        _IDLE_CHIP_HOURS,
                        "{{namespace}}/{{job}}",
                    ),
                ),
                "h",
                "stack",
            ),
            Plot(
                "Restarts an hour",
                "Restarts of whole jobs.",
                (
                    (
                        "sum by (namespace, job, cause) (increase(hajob_job_restarts_total[1h])) > 0",
                        "{{namespace}}/{{job}} {{cause}}",
                    ),
                ),
            ),
            Plot(
                "Lost controllers and standing orders",
                "Takeovers of MindIO controllers, and what coordinators did without the operator.",
                (
                    ("sum(increase(hajob_job_takeovers_total[1h]))", "takeovers"),
                    ("sum by (action) (increase(hajob_standing_actions_total[1h]))", "{{action}}"),
                ),
            ),
        ),
    ),
    Row(
        "Nodes",
        (
            Plot(
                "Nodes by state",
                "Nodes with chips.",
                (("max by (state) (hajob_nodes)", "{{state}}"),),
                shape="stack",
            ),
            Plot(
                "Chips by state",
                "Chips of these nodes.",
                (("sum by (state) (max by (resource, state) (hajob_chips))", "{{state}}"),),
                shape="stack",
            ),
            Plot(
                "Nodes that offend",
                "How often a node was isolated; each quiet day takes one away.",
                (("topk(10, max by (node) (hajob_node_offences))", ""),),
                shape="table",
                headings={"node": "node", VALUE: "offences"},
            ),
            Plot(
                "Faults, quarantines, breaker",
                "Standing faults of nodes and chips; while the breaker is open none is believed.",
                (
                    ("max(hajob_hardware_faults)", "faults"),
                    ("max(hajob_quarantined_nodes)", "quarantined nodes"),
                    ("max(hajob_quarantines_refused)", "refused quarantines"),
                    ("max(hajob_breaker_open)", "breaker open"),
                ),
            ),
            Plot(
                "Spare nodes",
                "Ready and desired.",
                (("sum by (kind) (max by (namespace, job, kind) (hajob_job_spare_nodes))", "{{kind}}"),),
                columns=ALL_COLUMNS,
            ),
        ),
    ),
    Row(
        "Operator",
        (
            Plot(
                "Leaders",
                "One leads.",
                (("sum(hajob_leader)", ""),),
                shape="number",
                columns=4,
                colours=((None, "red"), (1, "green"), (2, "red")),
            ),
            Plot(
                "Cut off",
                "Whether the leader hears most coordinators no more.",
                (("max(hajob_operator_cut_off)", ""),),
                shape="number",
                columns=4,
                colours=((None, "green"), (1, "red")),
                words={"0": "no", "1": "yes"},
            ),
            Plot(
                "Age of the Lease",
                "A leader that cannot renew for 3 s stops writing.",
                (("max(hajob_lease_age_seconds)", ""),),
                "s",
                "number",
                4,
                colours=((None, "green"), (3, "red")),
            ),
            Plot(
                "Versions",
                "Of the operators.",
                (("count by (version) (hajob_build_info)", ""),),
                shape="table",
                columns=12,
                headings={"version": "version", VALUE: "operators"},
                is_low=True,
            ),
            Plot(
                "Decisions",
                "From a coordinator's report to the order that answers it.",
                (
                    (_quantile(0.5, "hajob_decision_seconds", "15m"), "p50"),
                    (_quantile(0.99, "hajob_decision_seconds", "15m"), "p99"),
                ),
                "s",
            ),
            Plot(
                "Rounds of jobs",
                "Policies of a job, and the changes that they want.",
                (
                    (_quantile(0.5, "hajob_reconcile_seconds", "15m"), "p50"),
                    (_quantile(0.99, "hajob_reconcile_seconds", "15m"), "p99"),
                ),
                "s",
            ),
            Plot(
                "Writes to the API",
                "By verb and resource.",
                (("sum by (verb, resource) (rate(hajob_api_writes_total[5m]))", "{{verb}} {{resource}}"),),
                "reqps",
            ),
            Plot(
                "Waiting requests",
                "Requests to the API that wait for their turn.",
                (("max(hajob_api_requests_waiting)", "waiting requests"),),
            ),
            Plot(
                "Age of watches",
                "Since each watch heard anything; a server that is well sends something every minute.",
                (("max by (resource) (hajob_watch_age_seconds)", "{{resource}}"),),
                "s",
            ),
            Plot(
                "Refused input, restarted controllers",
                "What the operator could not read, and its own errors.",
                (
                    ("sum by (what) (increase(hajob_refused_total[1h]))", "refused: {{what}}"),
                    ("sum(increase(hajob_controller_restarts_total[1h]))", "restarted controllers"),
                ),
            ),
        ),
    ),
)

_THIS: Final = 'namespace="$namespace",job="$job"'
_OF_THIS: Final = f"{_THIS},"


def _of_job(name: str, more: str = "", by: str = "") -> str:
    """Return the newest value of a metric of the chosen job, by these labels."""
    group = f" by ({by})" if by else ""
    return f"max{group} ({name}{{{_THIS}{more}}})"


JOB: Final = (
    Row(
        "Now",
        (
            Plot(
                "State",
                "What it does, and why.",
                ((_of_job("hajob_job_state", by="state, reason"), ""),),
                shape="table",
                columns=6,
                headings={"state": "state", "reason": "reason"},
                is_low=True,
            ),
            Plot(
                "Coordinator",
                "Without it a fault costs a restart.",
                ((_of_job("hajob_job_coordinator_up"), ""),),
                shape="number",
                columns=3,
                colours=((None, "red"), (1, "green")),
                words={"0": "away", "1": "serves"},
            ),
            Plot("Step", "Newest finished step.", ((_of_job("hajob_job_step"), ""),), "", "number", 3),
            Plot("Step time", "At the present size.", ((_of_job("hajob_job_step_seconds"), ""),), "s", "number", 4),
            Plot(
                "Goodput of 24 h",
                "Share of the time on nodes that went into training.",
                ((_share_of_training(_OF_THIS, "24h"), ""),),
                "percentunit",
                "number",
                4,
            ),
            Plot(
                "Newest checkpoint",
                "How old it is.",
                ((f"time() - {_of_job('hajob_job_last_checkpoint_timestamp_seconds')}", ""),),
                "s",
                "number",
                4,
            ),
        ),
    ),
    Row(
        "Training",
        (
            Plot(
                "Step over time",
                "It stands during an outage.",
                ((_of_job("hajob_job_step"), "step"),),
                begins_at_zero=False,
            ),
            Plot(
                "Time of a step",
                "Of the last hundred steps: a slow rank makes all of them longer, a save the 95th percentile.",
                (
                    (_of_job("hajob_job_step_duration_seconds", ',percentile="50"'), "p50"),
                    (_of_job("hajob_job_step_duration_seconds", ',percentile="95"'), "p95"),
                ),
                "s",
            ),
            Plot(
                "Where the time goes",
                "Seconds of each second, by bucket.",
                ((f"sum by (bucket) (rate(hajob_job_goodput_seconds_total{{{_THIS}}}[5m]))", "{{bucket}}"),),
                "percentunit",
                "stack",
            ),
            Plot(
                "Data-parallel ranks and spare nodes",
                "Current below desired: the job is shrunk.",
                (
                    (_of_job("hajob_job_data_parallel_ranks", by="kind"), "ranks {{kind}}"),
                    (_of_job("hajob_job_spare_nodes", by="kind"), "spares {{kind}}"),
                ),
            ),
        ),
    ),
    Row(
        "Protection",
        (
            Plot(
                "Actions that would work",
                "Whether each action of recovery would work now.",
                ((_of_job("hajob_job_protected", by="action"), ""),),
                shape="table",
                headings={"action": "action", VALUE: "would work now"},
                words={"0": "no", "1": "yes"},
            ),
            Plot(
                "Missing preconditions",
                "`kubectl hajob doctor JOB` says what to change.",
                ((_of_job("hajob_job_unmet_precondition", by="name"), ""),),
                shape="table",
                headings={"name": "missing precondition"},
            ),
            Plot(
                "Budgets left",
                "How often each action may still be taken in its window.",
                ((_of_job("hajob_job_budget_left", by="action"), "{{action}}"),),
            ),
            Plot(
                "Conditions",
                "As in its status.",
                ((_of_job("hajob_job_condition", by="type, status, reason"), ""),),
                shape="table",
                headings={"type": "condition", "status": "status", "reason": "reason"},
            ),
        ),
    ),
    Row(
        "Faults",
        (
            Plot(
                "Incidents",
                "Since the operator's process began; `kubectl hajob timeline JOB` tells each.",
                ((f"sum by (action, outcome, code) (hajob_job_incidents_total{{{_THIS}}})", ""),),
                shape="table",
                headings=_INCIDENTS,
            ),
            Plot(
                "Outage by phase",
                "Seconds in an hour.",
                ((f"sum by (phase) (increase(hajob_job_outage_seconds_total{{{_THIS}}}[1h]))", "{{phase}}"),),
                "s",
                "stack",
            ),
            Plot(
                "Steps done again, restarts, takeovers",
                "In an hour.",
                (
                    (f"sum(increase(hajob_job_lost_steps_total{{{_THIS}}}[1h]))", "steps done again"),
                    (f"sum by (cause) (increase(hajob_job_restarts_total{{{_THIS}}}[1h]))", "restarts: {{cause}}"),
                    (f"sum(increase(hajob_job_takeovers_total{{{_THIS}}}[1h]))", "takeovers"),
                ),
            ),
            Plot(
                "Open incident",
                "For how long the training has stood.",
                ((_of_job("hajob_job_open_incident_seconds"), "open incident"),),
                "s",
            ),
            Plot(
                "Refused checkpoints",
                "Checkpoints that were not loaded, by reason.",
                ((f"sum by (reason) (hajob_job_checkpoints_refused_total{{{_THIS}}})", ""),),
                shape="table",
                columns=ALL_COLUMNS,
                headings={"reason": "reason", VALUE: "checkpoints"},
            ),
        ),
    ),
)


def panel_of_plot(plot: Plot) -> _PANEL:
    """Return the panel of a plot, without its place."""
    panel: _PANEL
    if plot.shape == "table":
        # Over time Grafana would write it at ticks of the axis, too.
        panel = table.Panel().with_transformation(_columns_of_plot(plot)).no_value("none")
    elif plot.shape == "number":
        panel = stat.Panel().graph_mode(common.BigValueGraphMode.NONE)
    else:
        panel = _panel_over_time(plot)
    panel = panel.title(plot.title).description(plot.told).datasource(_PROMETHEUS).span(plot.columns)
    panel = panel.height(_LOW if plot.shape == "number" or plot.is_low else _HIGH)
    panel = panel.thresholds(_steps_of_colours(plot.colours))
    if plot.unit:
        panel = panel.unit(plot.unit)
    if plot.words:
        words = {value: dashboard.ValueMappingResult(text=text) for value, text in plot.words.items()}
        panel = panel.mappings([dashboard.ValueMap(options=words)])
    for number, (expression, legend) in enumerate(plot.queries):
        panel = panel.with_target(_query_of_plot(plot, number, expression, legend))
    return panel


def _panel_over_time(plot: Plot) -> timeseries.Panel:
    panel = timeseries.Panel().legend(_legend_below())
    if plot.begins_at_zero:
        panel = panel.min(0)
    if plot.unit == "percentunit":
        panel = panel.max(1)
    if plot.unit in _COUNTS:  # a line of zeros would be drawn below an axis up to 100
        panel = panel.axis_soft_max(1)
    if not plot.unit:  # a count: no halves
        panel = panel.decimals(0)
    if plot.shape == "stack":
        panel = panel.stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL)).fill_opacity(40)
    return panel


def _columns_of_plot(plot: Plot) -> dashboard.DataTransformerConfig:
    """Return the transformation that gives the columns their order and names, and hides the rest."""
    hidden = {"Time": True, **({} if VALUE in plot.headings else {VALUE: True})}
    order = {label: number for number, label in enumerate(plot.headings)}
    options = {"excludeByName": hidden, "indexByName": order, "renameByName": dict(plot.headings)}
    return dashboard.DataTransformerConfig(id_val="organize", options=options)


def _steps_of_colours(colours: Iterable[tuple[float | None, str]]) -> boards.ThresholdsConfig:
    steps = [dashboard.Threshold(value=value, color=colour) for value, colour in colours]
    return boards.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(steps)


def _legend_below() -> common_builders.VizLegendOptions:
    legend = common_builders.VizLegendOptions()
    return legend.show_legend(True).placement(common.LegendPlacement.BOTTOM)


def _query_of_plot(plot: Plot, number: int, expression: str, legend: str) -> prometheus.Dataquery:
    query = prometheus.Dataquery().expr(expression).legend_format(legend).ref_id(chr(ord("A") + number))
    if plot.shape == "table":
        return query.instant().format(PromQueryFormat.TABLE)
    return query.range()


def _variable_of_datasource() -> boards.DatasourceVariable:
    return boards.DatasourceVariable("datasource").label("Prometheus").type("prometheus")


def _variable_of_label(name: str, query: str) -> boards.QueryVariable:
    variable = boards.QueryVariable(name).label(name).query(f"label_values({query})").datasource(_PROMETHEUS)
    return variable.refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)


def _build_board(uid: str, title: str, rows: Iterable[Row]) -> boards.Dashboard:
    board = boards.Dashboard(title).uid(uid).tags(["hajob"]).readonly().refresh("30s").time("now-6h", "now")
    board = board.timezone("browser").with_variable(_variable_of_datasource())
    for row in rows:
        board = board.with_row(boards.Row(row.title))
        for plot in row.plots:
            board = board.with_panel(panel_of_plot(plot))
    return board


def _board_of_fleet() -> boards.Dashboard:
    return _build_board("hajob-fleet", "Hajob: fleet", FLEET)


def _board_of_job() -> boards.Dashboard:
    board = _build_board("hajob-job", "Hajob: job", JOB)
    board = board.with_variable(_variable_of_label("namespace", "hajob_job_info, namespace"))
    board = board.with_variable(_variable_of_label("job", 'hajob_job_info{namespace="$namespace"}, job'))
    stands = boards.AnnotationQuery().name("does not train").datasource(_PROMETHEUS).enable(True)
    return board.annotation(stands.icon_color("red").expr(f"{_of_job('hajob_job_open_incident_seconds')} > 0"))


def rendered_boards() -> Mapping[str, str]:
    """Return the text of each file, by its path."""
    made = {"fleet": _board_of_fleet(), "job": _board_of_job()}
    return {
        f"{DIRECTORY}/{name}.json": json.dumps(board.build(), cls=JSONEncoder, indent=2, ensure_ascii=False) + "\n"
        for name, board in made.items()
    }


def main(arguments: list[str] | None = None) -> int:
    """Write the files, or say whether they are current."""
    return write_or_check("release.generate.dashboards", rendered_boards(), arguments)


if __name__ == "__main__":
    sys.exit(main())
