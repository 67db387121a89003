"""The frontend: kopf, in a thread and loop of its own, for everything about the HATrainingJob itself.

kopf handles finalizer, start and end of a job; it decides nothing. It runs apart because it ends the process's loop
on many errors (401, HTTP 410, 55 s of 5xx) and cancels every task that was made after it; here it is started again
half a second later, and the core goes on with the jobs it knows.

Only kopf's stateless side is used: `on.event` hands every object over as it is, and one daemon per job is the reason
for the finalizer. There are no change handlers, so no annotations and no diffs. A deleted job is held in `on.event`
until the core has released it: kopf removes the finalizer in the same pass, with no polling, and it works for a job
that was deleted while no operator was there, for which kopf starts no daemon.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.app.core import OperatorCore
from hajob.app.memory_tuning import without_package
from hajob.backoff import Backoff
from hajob.clock import Clock
from hajob.kube.client import ApiError, Kube
from hajob.kube.credentials import ApiCredentials
from hajob.metrics import FRONTEND_RESTARTS
from hajob.version import VERSION

with without_package("kubernetes"):  # kopf would load it for owner references of its models: 16 MiB
    import kopf

log = logging.getLogger(__name__)

_IDENTITY: Final = "hajob"  # kopf would make one from the user's name, which a container's user need not have
# A thread that still runs then is a daemon: it ends with the process.
_STOP_SECONDS: Final = 15.0

# kopf logs every call of a handler, that is every event.
logging.getLogger("kopf").setLevel(logging.WARNING)


class _Forever:
    """A repeatable sequence of endless delays, as kopf needs it."""

    def __iter__(self) -> Iterator[float]:
        yield from (0.2, 0.5, 1.0, 2.0)
        while True:
            yield 5.0


def kopf_settings() -> kopf.OperatorSettings:
    """Return settings under which kopf keeps no state, requests nothing it does not need, and survives an outage."""
    settings = kopf.OperatorSettings()
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.networking.request_timeout = 10
    settings.networking.connect_timeout = 3
    settings.networking.error_backoffs = _Forever()
    settings.watching.connect_timeout = 3
    settings.watching.chunk_size = 100
    settings.watching.inactivity_timeout = 70
    settings.queueing.worker_limit = None
    settings.execution.default_backoff = 1
    settings.background.cancellation_polling = 1
    settings.persistence.finalizer = names.FINALIZER
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=names.GROUP)
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=names.GROUP)
    return settings


class Frontend:
    """kopf under a supervisor. Make, start and stop it in the core's loop, while leading.

    Args:
        kube: the API, asked whether the CRD is there before kopf is started.
        credentials: handed to kopf at every start, and again when the server refuses them.
        clock: for backoff.
        namespaces: to serve; one without a name: all.

    Attributes:
        end_kopf: ends the present run of kopf, from any thread; it is started again, and then reads every job anew.
    """

    def __init__(
        self, kube: Kube, credentials: ApiCredentials, clock: Clock, namespaces: Sequence[str] = ("",)
    ) -> None:
        self._kube = kube
        self._credentials = credentials
        self._clock = clock
        self._namespaces = namespaces
        self._intake: OperatorCore | None = None
        self._core: asyncio.AbstractEventLoop | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._backoff = Backoff(first=0.5, longest=10.0)
        self._stopping = threading.Event()
        self.end_kopf: Callable[[], None] = lambda: None

    def start_serving(self, intake: OperatorCore) -> None:
        """Start serving a core; returns at once."""
        self._intake = intake
        self._core = asyncio.get_running_loop()  # noqa: TID251  # the other thread's calls
        self._supervisor = asyncio.create_task(self._restart_for_ever(), name="frontend")

    async def stop_serving(self) -> None:
        """Stop serving; the jobs stay as they are."""
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.gather(self._supervisor, return_exceptions=True)
            self._supervisor = None

    @property
    def has_ended(self) -> bool:
        """Whether it has ended though nobody stopped it."""
        return self._supervisor is not None and self._supervisor.done()

    async def _restart_for_ever(self) -> None:
        """Restart kopf whenever it ends, for whatever reason."""
        while True:
            try:
                problem = await self._run_when_installed()
            except Exception as error:
                task = asyncio.current_task()
                if task is not None and task.cancelling():  # the error came on the way out
                    raise
                log.exception("the frontend could not be run")
                problem = f"{type(error).__name__}: {error}"
            FRONTEND_RESTARTS.inc()
            log.warning("the frontend ended (%s) and is started again", problem or "without a reason")
            await self._clock.sleep(self._backoff.next_delay())

    async def _run_when_installed(self) -> str:
        """Wait for the CRD, then run kopf once; return why it ended."""
        await self._wait_for_crd()
        started = self._clock.monotonic()
        problem = await self._run_in_thread()
        if self._clock.monotonic() - started > 60:
            self._backoff.reset_delay()
        return problem

    async def _wait_for_crd(self) -> None:
        """Wait until jobs can be listed somewhere, which proves the CRD exists: kopf looks for it only once.

        A namespace that refuses access does not delay the others: kopf retries it by itself.
        """
        said: set[str] = set()
        waits = Backoff(first=0.5, longest=5.0)
        while True:
            for namespace in self._namespaces:
                try:
                    async for _ in self._kube.list_pages(names.PLURAL, namespace):
                        return
                except ApiError as error:
                    hint = " The CRD is missing: kubectl apply -f crds/." if error.status == 404 else ""
                    if str(error) not in said:
                        log.warning("HATrainingJobs cannot be listed: %s.%s", error, hint)
                        said.add(str(error))
            await self._clock.sleep(waits.next_delay())

    async def _run_in_thread(self) -> str:
        """Run kopf once in a thread; return why it ended. Cancelling ends it in an orderly way."""
        core = asyncio.get_running_loop()  # noqa: TID251  # the other thread's calls
        ended: asyncio.Future[str] = core.create_future()

        def note_end(problem: str) -> None:
            if not ended.done():
                ended.set_result(problem)

        def run_kopf() -> None:
            try:
                asyncio.run(self._run_kopf())
                problem = ""
            except BaseException as error:  # kopf may end with anything, and the thread with it
                problem = f"{type(error).__name__}: {error}"
            core.call_soon_threadsafe(note_end, problem)

        self._stopping.clear()
        thread = threading.Thread(target=run_kopf, name="frontend", daemon=True)
        thread.start()
        try:
            return await asyncio.shield(ended)
        finally:
            self._stopping.set()  # for a loop that is not there yet
            self.end_kopf()
            await asyncio.to_thread(thread.join, _STOP_SECONDS)

    async def _run_kopf(self) -> None:
        """Run kopf in this thread's loop until it ends."""
        loop, stop = asyncio.get_running_loop(), asyncio.Event()  # noqa: TID251  # the other thread's calls

        def end() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(stop.set)

        self.end_kopf = end
        if self._stopping.is_set():
            return
        scope: dict[str, Any] = {"clusterwide": True} if "" in self._namespaces else {"namespaces": self._namespaces}
        await kopf.operator(
            registry=self._build_registry(), settings=kopf_settings(), identity=_IDENTITY, stop_flag=stop, **scope
        )

    def _build_registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        where = {"group": names.GROUP, "version": names.VERSION, "plural": names.PLURAL, "registry": registry}

        async def offer_credentials(**_: object) -> kopf.ConnectionInfo:
            await self._credentials.refresh_kubeconfig()
            return connection_info(self._credentials)

        async def live_until_stopped(stopped: kopf.DaemonStopped, **_: object) -> None:
            await stopped.wait()

        kopf.on.login(registry=registry)(offer_credentials)
        kopf.on.event(**where)(self._hand_to_core)
        kopf.daemon(**where)(live_until_stopped)
        return registry

    async def _hand_to_core(self, event: dict[str, Any], **_: object) -> None:
        """Hand an object to the core; hold a deleted one here until the core has released it."""
        core, intake = self._core, self._intake
        if core is None or intake is None:
            raise RuntimeError("the frontend was not started")
        raw = _take_contents(event["object"])
        metadata = raw["metadata"]
        if event["type"] == "DELETED":
            core.call_soon_threadsafe(intake.handle_deleted_job, metadata["uid"])
            return
        core.call_soon_threadsafe(intake.handle_job, raw)
        if metadata.get("deletionTimestamp") and names.FINALIZER in (metadata.get("finalizers") or []):
            released = asyncio.run_coroutine_threadsafe(_release_until_done(intake, metadata["uid"], self._clock), core)
            await asyncio.wrap_future(released)


def _take_contents(raw: Json) -> Json:
    """Return the whole object without managedFields; leave in `raw` what kopf needs of it.

    kopf keeps the object for the daemon for as long as the job exists; this removes nearly all of it.
    """
    raw["metadata"].pop("managedFields", None)
    whole = dict(raw)
    for content in ("spec", "status"):
        raw.pop(content, None)
    return whole


async def _release_until_done(intake: OperatorCore, uid: str, clock: Clock) -> None:
    """Have the core release a job, in the core's loop, and retry until it succeeds."""
    backoff = Backoff()
    while True:
        try:
            await intake.release_job(uid)
        except ApiError as error:
            log.warning("job %s cannot be released yet: %s", uid, error)
            await clock.sleep(backoff.next_delay())
        else:
            return


class OperatorConnection(kopf.ConnectionInfo):  # type: ignore[misc]
    """Credentials that name the operator to the server: what kopf writes has its name as field manager, too."""

    def as_http_headers(self) -> dict[str, str]:
        """Return the headers of each request."""
        return {**super().as_http_headers(), "User-Agent": f"{names.OPERATOR_NAME}/{VERSION}"}


def connection_info(credentials: ApiCredentials) -> OperatorConnection:
    """Return the operator's credentials in kopf's form; proxies of the environment are not used.

    The same credentials make equal values: kopf then ends when they are refused twice. With anything in them that
    changes, such as a time of expiry, it would offer them again and again without a pause.
    """
    return OperatorConnection(
        server=credentials.server,
        ca_path=credentials.ca_file or None,
        certificate_path=credentials.certificate_file or None,
        private_key_path=credentials.key_file or None,
        insecure=not credentials.verify,
        scheme=credentials.scheme,
        token=credentials.bearer_token or None,
    )
