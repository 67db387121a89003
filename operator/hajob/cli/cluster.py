"""What the commands ask of a cluster, with the rights of the person who types them.

Kubeconfig and streams are those of the `kubernetes` package, imported late: it takes half a second, and most commands
fail or end without it. Every failure is a `ClusterError` with a sentence.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hajob.api import constants as names

if TYPE_CHECKING:
    from hajob.api.base import Json

Write = Callable[[bytes], None]

# A person waits: a server that has not answered by then is taken for unreachable.
_REQUEST_SECONDS: Final = 30.0
# Between two looks whether the exec stream is still open; output ends the wait at once.
_POLL_SECONDS: Final = 1.0
# Channels of the subprotocol v4.channel.k8s.io; the last one carries the exit code.
_STDOUT, _STDERR, _ERROR = 1, 2, 3


class Container(NamedTuple):
    """One container of a pod."""

    namespace: str
    pod: str
    name: str


class Streams(NamedTuple):
    """Where a command's standard output and standard error go."""

    out: Write
    error: Write


class ClusterError(Exception):
    """The cluster can't be reached or refuses; the text is for the person who asked."""


class ForbiddenError(ClusterError):
    """The person who asked lacks a right: nothing is known about what was asked."""


class KubernetesCluster:
    """A cluster as one person sees it. Every method raises `ClusterError`.

    Attributes:
        namespace: the one that is meant where none is named.
    """

    def __init__(self, kubeconfig: str | None = None, context: str | None = None) -> None:
        from kubernetes import client

        from hajob.cli.library_client import load_kubeconfig

        self._client: Any = client
        try:
            api_client, self.namespace = load_kubeconfig(kubeconfig, context)
        except ValueError as problem:
            raise ClusterError(f"no kubeconfig can be used: {problem}") from None
        self._core: Any = client.CoreV1Api(api_client)
        self._custom: Any = client.CustomObjectsApi(api_client)

    def get_job(self, namespace: str, name: str) -> Json:
        """Return one HATrainingJob."""
        what = f"HATrainingJob {name} in namespace {namespace}"
        with self._failures_told(what):
            found = self._custom.get_namespaced_custom_object(
                names.GROUP, names.VERSION, namespace, names.PLURAL, name, _request_timeout=_REQUEST_SECONDS
            )
        return _as_object(found, what)

    def list_pods(self, namespace: str, selector: str) -> list[Json]:
        """Return the pods with these labels."""
        what = f"pods in namespace {namespace}"
        with self._failures_told(what):
            response = self._core.list_namespaced_pod(
                namespace, label_selector=selector, _request_timeout=_REQUEST_SECONDS, _preload_content=False
            )
        found = _as_object(_read_json(response.data, what), what).get("items")
        return [one for one in found or () if isinstance(one, dict)] if isinstance(found, list | None) else []

    def execute_in_container(self, container: Container, command: list[str], streams: Streams, *, hold: bool) -> int:
        """Run a command in a container and hand on what it writes; return its exit code.

        `hold` keeps its standard input open: a command that reads it knows by its end that nobody listens any more.
        """
        from kubernetes.stream import stream
        from websocket import WebSocketException

        from hajob.cli.library_client import websocket_call

        what = f"a command in pod {container.pod} (the right to get and create pods/exec is needed)"
        with self._failures_told(what):
            connection = stream.func(
                websocket_call(self._core.api_client),
                None,
                self._core.connect_get_namespaced_pod_exec,
                container.pod,
                container.namespace,
                container=container.name,
                command=command,
                stdin=hold,
                stdout=True,
                stderr=True,
                tty=False,
                binary=True,
                _preload_content=False,
            )
        try:
            while connection.is_open():
                connection.update(timeout=_POLL_SECONDS)
                _write_to_streams(connection, streams)
            _write_to_streams(connection, streams)
            return exit_code_of_stream(connection.read_channel(_ERROR), what)
        except BrokenPipeError:  # whoever reads the output has left
            raise
        except (OSError, WebSocketException) as problem:
            raise ClusterError(f"{what} was cut off: {problem}") from None
        finally:
            connection.close()

    def container_log(self, container: Container) -> Iterator[bytes]:
        """Yield what the kubelet keeps of a container's output, line by line."""
        with self._failures_told(f"the log of pod {container.pod}"):
            response = self._core.read_namespaced_pod_log(
                container.pod,
                container.namespace,
                container=container.name,
                _request_timeout=_REQUEST_SECONDS,
                _preload_content=False,
            )
        yield from response

    def create_pod(self, pod: Json) -> str:
        """Create a pod; return its name."""
        namespace = pod["metadata"]["namespace"]
        with self._failures_told(f"a pod in namespace {namespace} (the right to create pods is needed)"):
            made = self._core.create_namespaced_pod(namespace, pod, _request_timeout=_REQUEST_SECONDS)
        return str(made.metadata.name)

    def get_pod(self, namespace: str, name: str) -> Json:
        """Return one pod."""
        with self._failures_told(f"pod {name} (the right to get pods is needed)"):
            response = self._core.read_namespaced_pod(
                name, namespace, _request_timeout=_REQUEST_SECONDS, _preload_content=False
            )
        return _as_object(_read_json(response.data, f"pod {name}"), f"pod {name}")

    def delete_pod(self, namespace: str, name: str) -> None:
        """Delete a pod; one that is gone is no error."""
        try:
            with self._failures_told(f"pod {name} (the right to delete pods is needed)"):
                self._core.delete_namespaced_pod(
                    name, namespace, grace_period_seconds=0, _request_timeout=_REQUEST_SECONDS
                )
        except ClusterError as refusal:
            if not str(refusal).endswith("not found"):
                raise

    @contextmanager
    def _failures_told(self, what: str) -> Iterator[None]:
        """Turn every failure of the client into a sentence about `what`."""
        from urllib3.exceptions import HTTPError

        try:
            yield
        except self._client.ApiException as refusal:
            # Of a stream that is not opened, the package hands on the headers of the answer as text.
            handshake = refusal.__context__
            status = getattr(handshake, "status_code", refusal.status)
            if status == 404:
                raise ClusterError(f"{what}: not found") from None
            body = getattr(handshake, "resp_body", refusal.body)
            usual = f"the server answers {status}" if handshake is not None else str(refusal.reason)
            kind = ForbiddenError if status == 403 else ClusterError
            raise kind(f"{what}: {sentence_of_refusal(body, usual)}") from None
        except (HTTPError, OSError) as problem:
            raise ClusterError(f"{what}: the API server cannot be reached: {problem}") from None


def _read_json(content: bytes, what: str) -> object:
    try:
        return json.loads(content)
    except ValueError:
        raise ClusterError(f"{what}: the answer is no JSON") from None


def _as_object(found: object, what: str) -> Json:
    """Return an answer that is an object; what stands before the server may answer in a way of its own."""
    if not isinstance(found, dict):
        raise ClusterError(f"{what}: the answer is no object of Kubernetes")
    return found


def _write_to_streams(connection: Any, streams: Streams) -> None:  # noqa: ANN401  the client has no types
    for channel, write in ((_STDOUT, streams.out), (_STDERR, streams.error)):
        data = connection.read_channel(channel)
        if data:
            write(data)


def exit_code_of_stream(status: bytes, what: str) -> int:
    """Read the exit code at the end of an exec stream; `ClusterError` where the command never ran or was cut off."""
    try:
        told = json.loads(status or b"null") or {}
    except ValueError:
        told = {}
    if told.get("status") == "Success":
        return 0
    causes = (told.get("details") or {}).get("causes") or []
    codes = [str(cause.get("message")) for cause in causes if cause.get("reason") == "ExitCode"]
    if codes and codes[0].isdecimal():
        return int(codes[0])
    raise ClusterError(f"{what}: {told.get('message') or 'the connection ended before the command did'}")


def sentence_of_refusal(body: Any, usual: str) -> str:  # noqa: ANN401  the client has no types
    """Return the server's own sentence, which the body of a refusal holds; `usual` where it holds none."""
    try:
        return str(json.loads(body)["message"])
    except (TypeError, ValueError, KeyError):
        return usual
