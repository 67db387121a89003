"""The values of the Helm chart: declared here once, with the operator's own settings among them.

Written from it: `charts/hajob/values.yaml`, `values.schema.json` (so that Helm refuses a wrong value in a sentence),
the chart's copies of the CRDs, and the table `docs/admin/chart.md`. Run as `python -m release.generate.chart
[--check]`.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.alias_generators import to_camel

from hajob.api.base import Json
from hajob.app.settings import LogLevel, Settings
from hajob.log_format import LogFormat
from hajob.pods.settings import PullPolicy
from release.generate.files import ROOT, write_or_check
from release.generate.operator_page import sentences

CHART: Final = ROOT / "charts" / "hajob"

BY_THE_CHART: Final = frozenset(
    {
        "namespace",
        "pod_name",
        "identity",
        "pod_ip",
        "kubeconfig",
        "service_account_dir",
        "watch_namespaces",
        "fault_namespaces",
        "sidecar_image",
        "sidecar_image_pull_policy",
        "sidecar_pull_secrets",
        "sidecar_resources",
        "sidecar_security_context",
        "kueue_enabled",
        "metrics_port",
        "log_level",
        "log_format",
        "volcano_enabled",
        "webhook_url",
        "webhook_directory",
        "webhook_body",
        "webhook_cluster",
    }
)
"""Settings that the chart derives from its own values."""

Port = Annotated[int, Field(ge=1, le=65535)]
Namespace = Annotated[str, Field(pattern="^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]


class Values(BaseModel):
    """Base of every part; a name that is not known is refused."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, use_attribute_docstrings=True, extra="forbid"
    )


class Image(Values):
    """The operator's image."""

    repository: str = "hajob/operator"
    """Registry and name."""
    tag: str = ""
    """Tag; empty: the chart's appVersion."""
    digest: str = ""
    """Digest (`sha256:…`); it counts more than the tag."""
    pull_policy: PullPolicy = "IfNotPresent"
    """When it is pulled."""
    pull_secrets: list[str] = []
    """Names of Secrets in the operator's namespace that open the registry."""


class Sidecar(Values):
    """Hajob's containers in the pods of jobs."""

    image: str = ""
    """Whole name of the image; empty: the operator's, which holds both."""
    pull_policy: PullPolicy = "IfNotPresent"
    """When it is pulled."""
    pull_secrets: list[str] = []
    """Names of Secrets in the jobs' namespaces that open its registry."""
    resources: Json = {}
    """Requests and limits where the job says nothing; empty: one CPU of each agent, else
    50m, and 64Mi requested."""
    security_context: Json = {}
    """Fields over what Pod Security `restricted` asks for."""


class PriorityClass(Values):
    """Of the operator's pods."""

    create: bool = True
    """Whether the chart makes it."""
    name: str = "hajob-operator"
    """Its name; one that exists where it is not made; empty: none."""
    value: int = 900000000
    """Its value."""


class Monitor(Values):
    """For the Prometheus operator."""

    enabled: bool = False
    """Whether there is one; its CRD must be installed."""
    interval: str = "30s"
    """How often the metrics are read."""
    labels: dict[str, str] = {}
    """By which a Prometheus finds it."""


class Rules(Values):
    """For the Prometheus operator: a PrometheusRule."""

    enabled: bool = False
    """Whether there is one, with the alerts of docs/admin/alerts.md; its CRD must be installed."""
    runbook_base: str = "docs/admin/"
    """Where the directory of that page is served, with a slash at its end: `runbook_url` of each alert begins so."""
    labels: dict[str, str] = {}
    """By which a Prometheus finds it."""


class Dashboards(Values):
    """For Grafana: its boards."""

    enabled: bool = False
    """Whether there is a ConfigMap with the boards of fleet and job, as Grafana's sidecar loads them."""
    labels: dict[str, str] = {"grafana_dashboard": "1"}
    """By which that sidecar finds it."""


class Metrics(Values):
    """Health and metrics."""

    port: Port = 8080
    """Where they are served."""
    service_monitor: Monitor = Monitor()
    """For the Prometheus operator: a ServiceMonitor, with a Service."""
    pod_monitor: Monitor = Monitor()
    """For the Prometheus operator: a PodMonitor, which needs no Service; one of the two is enough."""
    rules: Rules = Rules()
    """For the Prometheus operator: a PrometheusRule with alerts."""
    dashboards: Dashboards = Dashboards()
    """For Grafana: boards of fleet and job."""


class Webhook(Values):
    """News of incidents, posted to one address."""

    url: str = ""
    """Where to; empty: nowhere, or where the Secret says."""
    secret_name: str = ""
    """Secret in the operator's namespace with `url` (which counts more), `key` (of the HMAC), `ca.crt`; each may be
    missing. A new one counts without a restart."""
    cluster: str = ""
    """Name of this cluster in each event."""
    body: Json = {}
    """What a chat's robot is sent, with names such as `$message` in its texts (examples/webhook); empty: a
    CloudEvent."""


class NetworkPolicy(Values):
    """Who may speak to operator, coordinators and agents, where the network enforces it."""

    enabled: bool = False
    """Whether there are NetworkPolicies."""
    job_namespaces: list[str] = []
    """Namespaces of jobs that get them as well."""


class AdmissionPolicy(Values):
    """Who may write what in a HATrainingJob, beside the rights: a ValidatingAdmissionPolicy."""

    enabled: bool = False
    """Whether only the operator writes the status of jobs and takes its finalizer, whatever rights others have. Needs
    Kubernetes 1.30. Off, because with it an admin, too, cannot repair a job by hand while there is no operator."""


class Volcano(Values):
    """For jobs with `gangPolicy: Volcano`."""

    enabled: bool = False
    """Whether such jobs are served: the operator gets the rights to PodGroups and Queues, and watches both. Volcano
    must be installed."""


class Kueue(Values):
    """Quota from Kueue."""

    enabled: bool = False
    """Whether jobs with the label `kueue.x-k8s.io/queue-name` get their quota from Kueue (docs/admin/schedulers.md):
    gives the operator rights to Workloads, flavors and priority classes. Without it such a job is not started."""


class Ui(Values):
    """A page of jobs, ranks and nodes for a team (docs/user/ui.md)."""

    enabled: bool = False
    """Whether it runs. It has no rights: who logs in, with a token of the cluster, sees what that token may see."""
    port: Port = 8443
    """Where it listens in its pod."""
    tls_secret_name: str = ""
    """Secret of type kubernetes.io/tls in the operator's namespace; with it there is a Service hajob-ui. Empty: it
    listens inside its pod only, for `kubectl port-forward`, so that no token crosses a network in the clear."""
    resources: Json = {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}}
    """Requests and limits; of each person the objects that they may see are in memory."""


class Crds(Values):
    """The CRD."""

    install: bool = True
    """Whether the chart installs and upgrades it. It stays when the chart is uninstalled, and so do the jobs."""


def _settings_model() -> type[Values]:
    told, kinds = sentences(), get_type_hints(Settings, include_extras=True)
    fields: dict[str, Any] = {
        field.name: (kinds[field.name], Field(field.default, description=told[field.name]))
        for field in dataclasses.fields(Settings)
        if field.name not in BY_THE_CHART
    }
    return create_model("OperatorSettings", __base__=Values, __doc__="Of the operator.", **fields)


OperatorSettings = _settings_model()


class ChartValues(Values):
    """All values."""

    image: Image = Image()
    """The operator's image."""
    sidecar: Sidecar = Sidecar()
    """Hajob's containers in the pods of jobs."""
    replicas: Annotated[int, Field(ge=1)] = 2
    """Operators, one of them leading; they stand on different nodes."""
    watch_namespaces: list[Namespace] = []
    """Namespaces whose jobs are served, which must exist; empty: all. With a list the rights to jobs, pods, Secrets,
    budgets and Events end there; cluster-wide the operator still lists all pods, for the chips that they take, and
    nodes, writes NodeQuarantines, and may patch jobs, to let go those of a namespace that is deleted."""
    watch_namespace: Namespace | Literal[""] = ""
    """As in 0.1: one more of these."""
    fault_namespaces: list[str] = ["kube-system"]
    """Where device plugin, NodeD and ClusterD write; add `mindx-dl` where it exists."""
    log_level: LogLevel = "INFO"
    """Level of the operator's own log."""
    log_format: LogFormat = "text"
    """What its log and those of the sidecars are: `text`, or `json`, an object a line."""
    settings: OperatorSettings = OperatorSettings()  # type: ignore[valid-type]
    """Further settings of the operator."""
    metrics: Metrics = Metrics()
    """Health and metrics."""
    webhook: Webhook = Webhook()
    """The begin and end of each incident, posted to one address (docs/admin/webhook.md)."""
    network_policy: NetworkPolicy = NetworkPolicy()
    """Who may speak to operator, coordinators and agents."""
    admission_policy: AdmissionPolicy = AdmissionPolicy()
    """Who may write what in a HATrainingJob, beside the rights."""
    volcano: Volcano = Volcano()
    """For jobs with `gangPolicy: Volcano`."""
    kueue: Kueue = Kueue()
    """Quota from Kueue."""
    ui: Ui = Ui()
    """A page for a team."""
    job_defaults: Json = {}
    """What jobs have where they say nothing, from their creation on: a path below `spec` and its value
    (`{"network.interface": "bond0", "coordinator.tolerations": [{"operator": "Exists"}]}`). Needs Kubernetes 1.36."""
    pod_disruption_budget: bool = True
    """Whether a drain takes one replica after the other."""
    priority_class: PriorityClass = PriorityClass()
    """Of the operator's pods."""
    resources: Json = {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}}
    """Requests and limits of the operator."""
    node_selector: dict[str, str] = {}
    """Labels that the operator's nodes must have."""
    tolerations: list[Json] = []
    """Taints that the operator bears, beside those of a lost node."""
    extra_labels: dict[str, str] = {}
    """Labels of everything that the chart makes."""
    crds: Crds = Crds()
    """The CRD."""


def schema() -> Json:
    """JSON schema of the values."""
    made = ChartValues.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}


def defaults() -> Json:
    """The values as they are when nobody says otherwise."""
    return ChartValues().model_dump(by_alias=True)


def _rows(model: type[BaseModel], values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any, str]]:
    """Path, default and sentence of each value."""
    for name, field in model.model_fields.items():
        key = field.alias or name
        value, place = values[key], f"{path}{key}"
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _rows(field.annotation, value, f"{place}.")
        else:
            yield place, value, " ".join((field.description or "").split())


def _values_yaml(model: type[BaseModel], values: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        key = field.alias or name
        yield f"{indent}# {' '.join((field.description or '').split())}"
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield f"{indent}{key}:"
            yield from _values_yaml(field.annotation, values[key], f"{indent}  ")
        else:
            yield f"{indent}{key}: {json.dumps(values[key], ensure_ascii=False)}"


_HEAD: Final = """\
# Reference: the values of the Helm chart

Generated by `python -m release.generate.chart`. How to install with it is in [install.md](install.md).

| value | default | meaning |
| --- | --- | --- |
"""


def files() -> Mapping[Path, str]:
    """Every file that is written, with its text."""
    rows = "\n".join(
        f"| `{path}` | `{json.dumps(value)}` | {told} |" for path, value, told in _rows(ChartValues, defaults())
    )
    head = "# Generated by `python -m release.generate.chart`; what each value means is in docs/admin/chart.md, too.\n"
    return {
        CHART / "values.yaml": head + "\n".join(_values_yaml(ChartValues, defaults())) + "\n",
        CHART / "values.schema.json": json.dumps(schema(), indent=2, ensure_ascii=False) + "\n",
        CHART / "files" / "settings.json": json.dumps(defaults()["settings"], indent=2) + "\n",
        **{
            CHART / "files" / path.name: path.read_text(encoding="utf-8")
            for path in sorted((ROOT / "crds").glob("*.yaml"))
        },
        ROOT / "docs" / "admin" / "chart.md": _HEAD + rows + "\n",
    }


def main(arguments: list[str] | None = None) -> int:
    """Write the files, or say whether they are current."""
    pages = {str(path.relative_to(ROOT)): text for path, text in files().items()}
    return write_or_check("release.generate.chart", pages, arguments)


if __name__ == "__main__":
    sys.exit(main())
