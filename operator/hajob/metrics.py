"""The operator's metrics, declared once, and the small HTTP server for them.

Every metric stands here with its help text; the code elsewhere only increments. Health is served beside it: kopf's own
probe answers as long as its task lives, which says nothing about whether the caches still move.
"""

from __future__ import annotations

import ipaddress
import logging
import platform
from collections.abc import Callable

import orjson
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from hajob.version import VERSION

log = logging.getLogger(__name__)

REGISTRY = CollectorRegistry()

INCIDENTS = Counter(
    "hajob_incidents",
    "Incidents closed, by their action and outcome.",
    ("action", "outcome"),
    registry=REGISTRY,
)
OUTAGE = Histogram(
    "hajob_outage_seconds",
    "Outage of closed incidents, from the last common step to the first step after it.",
    ("action",),
    buckets=(0.25, 0.5, 1, 2, 3, 5, 8, 13, 30, 60, 120, 300, 900),
    registry=REGISTRY,
)
TAKEOVER = Histogram(
    "hajob_takeover_seconds",
    "Time from the loss of a MindIO controller until another one protects the job.",
    buckets=(0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60),
    registry=REGISTRY,
)
DECISION = Histogram(
    "hajob_decision_seconds",
    "Time from a coordinator's report to the order that answers it.",
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5),
    registry=REGISTRY,
)
FACTS = Counter("hajob_facts", "Facts received, by kind.", ("kind",), registry=REGISTRY)
CHECKPOINTS_REFUSED = Counter(
    "hajob_checkpoints_refused",
    "Checkpoints not loaded because they were incomplete, by reason.",
    ("reason",),
    registry=REGISTRY,
)
REFUSED = Counter("hajob_refused", "Rejected inputs, by kind.", ("what",), registry=REGISTRY)
NOT_CREATED = Counter(
    "hajob_pods_not_created",
    "Pod creations that the API server refused, by reason.",
    ("reason",),
    registry=REGISTRY,
)
IGNORED = Counter(
    "hajob_events_ignored",
    "Events of a job that changed nothing, by event and reason.",
    ("event", "reason"),
    registry=REGISTRY,
)
STANDING_ACTIONS = Counter(
    "hajob_standing_actions",
    "Actions that coordinators took by their standing orders, without a decision of the operator.",
    ("action",),
    registry=REGISTRY,
)
HARDWARE_FAULTS = Gauge(
    "hajob_hardware_faults", "Current faults of nodes and chips, whether they hit a job or not.", registry=REGISTRY
)
BREAKER_OPEN = Gauge(
    "hajob_breaker_open",
    "1 while the breaker is open: too many faults at once, a silent writer or a clock jump.",
    registry=REGISTRY,
)
QUARANTINED = Gauge("hajob_quarantined_nodes", "Nodes in quarantine.", registry=REGISTRY)
QUARANTINES_REFUSED = Gauge(
    "hajob_quarantines_refused", "Nodes not quarantined because the limit is reached.", registry=REGISTRY
)
REJECTED = Gauge(
    "hajob_fault_objects_rejected",
    "Fault objects currently rejected, by reason.",
    ("reason",),
    registry=REGISTRY,
)
WRITES = Counter(
    "hajob_api_writes", "Writes to the Kubernetes API, by verb and resource.", ("verb", "resource"), registry=REGISTRY
)
JOBS = Gauge("hajob_jobs", "Jobs that this operator serves.", registry=REGISTRY)
JOBS_ON_HOLD = Gauge(
    "hajob_jobs_on_hold",
    "Jobs left untouched because the operator cannot read their journal or spec.",
    ("reason",),
    registry=REGISTRY,
)
CERTIFICATES_NOT_REPLACED = Counter(
    "hajob_certificates_not_replaced", "Failed certificate rotations.", registry=REGISTRY
)
CRD_DIFFERENCES = Gauge(
    "hajob_crd_differences",
    "Fields that differ between the installed CRD and this operator.",
    ("crd",),
    registry=REGISTRY,
)
RECONCILE = Histogram(
    "hajob_reconcile_seconds",
    "Time that a round of a job takes: its policies, and the changes of objects that they want.",
    buckets=(0.001, 0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 30),
    registry=REGISTRY,
)
REQUESTS_WAITING = Gauge(
    "hajob_api_requests_waiting", "Requests to the Kubernetes API that wait for their turn.", registry=REGISTRY
)
LEASE_AGE = Gauge(
    "hajob_lease_age_seconds",
    "Seconds since this leader renewed its Lease; 0 while it does not lead.",
    registry=REGISTRY,
)
BUILD_INFO = Gauge(
    "hajob_build_info", "Always 1; the version of this operator.", ("version", "python"), registry=REGISTRY
)
BUILD_INFO.labels(VERSION, platform.python_version()).set(1)
LEADER = Gauge("hajob_leader", "1 while this process is the leader.", registry=REGISTRY)
CUT_OFF = Gauge(
    "hajob_operator_cut_off",
    "1 while this leader considers itself cut off: most coordinators do not answer.",
    registry=REGISTRY,
)
WATCH_AGE = Gauge(
    "hajob_watch_age_seconds", "Seconds since each watch last heard anything.", ("resource",), registry=REGISTRY
)
NAMESPACE_REFUSED = Gauge(
    "hajob_namespace_refused",
    "1 while a namespace of the list is not served, because this operator may not read it.",
    ("namespace",),
    registry=REGISTRY,
)
WEBHOOK_EVENTS = Counter(
    "hajob_webhook_events",
    "News of incidents for the webhook, by whether they were delivered, failed, or dropped because too many waited.",
    ("outcome",),
    registry=REGISTRY,
)
CONTROLLER_RESTARTS = Counter(
    "hajob_controller_restarts", "Job controllers restarted after an error.", registry=REGISTRY
)
SERVER_RESTORED = Counter(
    "hajob_api_server_restored",
    "Times that the API server was found older than before, as after its restoration from a snapshot.",
    registry=REGISTRY,
)
FRONTEND_RESTARTS = Counter("hajob_frontend_restarts", "Restarts of the kopf frontend.", registry=REGISTRY)


class CannotServeError(Exception):
    """The port of health and metrics cannot be had; the message says where and why."""


def listening_addresses(pod_ip: str) -> tuple[str, ...]:
    """Return where to listen: the pod's own address, for kubelet and Prometheus, and the loopback, for `port-forward`.

    Never at the wildcard. A pod whose own address is a loopback one shares the loopback with others.
    """
    own = ipaddress.ip_address(pod_ip)
    if own.is_loopback:
        return (pod_ip,)
    return (pod_ip, "127.0.0.1" if own.version == 4 else "::1")


async def listen_for_metrics(runner: web.AppRunner, pod_ip: str, port: int) -> None:
    """Listen at these addresses.

    Raises:
        CannotServeError: the pod's own address is none, or cannot be had.
    """
    try:
        own, *others = listening_addresses(pod_ip)
        await web.TCPSite(runner, own, port).start()
    except (OSError, ValueError) as error:
        where = f"{pod_ip}, port {port} (HAJOB_POD_IP, HAJOB_METRICS_PORT)"
        raise CannotServeError(f"health and metrics cannot be served at {where}: {error}") from error
    for other in others:
        try:
            await web.TCPSite(runner, other, port).start()
        except OSError as error:
            log.warning(
                "%s:%d cannot be had, so kubectl port-forward does not reach this operator: %s", other, port, error
            )


def build_application(
    healthy: Callable[[], str],
    ready: Callable[[], str],
    note: Callable[[], str] = lambda: "",
    faults: Callable[[], object] = dict,
) -> web.Application:
    """Build the HTTP application: /healthz, /readyz, /metrics, /faults.

    Args:
        healthy: the reason why the process should be restarted, or an empty text.
        ready: the reason why it cannot serve yet, or an empty text.
        note: what an admin should know of an operator that is ready, or an empty text.
        faults: the faults that are read, held back and rejected, as JSON values.
    """

    def probe(ask: Callable[[], str], also: Callable[[], str] = lambda: "") -> Callable[[web.Request], object]:
        async def tell_reason(_: web.Request) -> web.Response:
            reason = ask()
            return web.Response(status=503 if reason else 200, text=reason or "; ".join(filter(None, ("ok", also()))))

        return tell_reason

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(REGISTRY), content_type="text/plain")

    async def report(_: web.Request) -> web.Response:
        return web.Response(body=orjson.dumps(faults()), content_type="application/json")

    app = web.Application()
    app.router.add_get("/healthz", probe(healthy))  # type: ignore[arg-type]
    app.router.add_get("/readyz", probe(ready, note))  # type: ignore[arg-type]
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/faults", report)
    return app
