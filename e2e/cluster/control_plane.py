"""The local control plane: etcd, API server, controller manager and scheduler as processes of one run.

Blocking on purpose: it is started once and then only used, and what uses it (kubectl, pytest fixtures, the demo's
script) reads best from top to bottom. It listens on 127.R.0.1 of its run only. What a person or a test needs of it
is its URL, a kubeconfig that nobody else's kubectl ever sees, and the audit log.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from e2e.bootstrap.binaries import locate
from e2e.cluster import components
from e2e.cluster.audit import AuditLog
from e2e.cluster.components import RunLayout
from e2e.cluster.pki import Authority, kubeconfig, signing_key
from e2e.cluster.rest import ApiClient, ApiError
from e2e.cluster.run import Run, free_port

T = TypeVar("T")

LISTENERS = {"etcd": 2379, "etcd-peer": 2380, "apiserver": 6443, "controller-manager": 10257, "scheduler": 10259}
USERS = {
    "admin": ("kubernetes-admin", ("system:masters",)),
    "controller-manager": ("system:kube-controller-manager", ()),
    "scheduler": ("system:kube-scheduler", ()),
}
READY_SECONDS = 120.0
POLL_SECONDS = 0.05
LAYOUT_FILE = "control-plane.json"
LESS_GARBAGE_COLLECTION = {"GOGC": "400", "GOMEMLIMIT": "1200MiB"}
"""A fifth less processor time for the API server; the limit is twice what lives in it when three workers share it."""


class ControlPlaneError(RuntimeError):
    """A part of the control plane ended or did not become ready; the message ends with its last words."""


class ControlPlane:
    """A control plane that runs, as its starter or a process that joined it sees it.

    Attributes:
        run: The run it belongs to.
        server: URL of the API server.
        kubeconfig: A kubeconfig of the cluster's admin.
        authority: Signs client and serving certificates for it.
        api: A client as admin.
        audit: Its audit log.
    """

    def __init__(self, run: Run, layout: RunLayout, authority: Authority) -> None:
        self.run = run
        self.layout = layout
        self.authority = authority
        self.server = layout.server
        self.kubeconfig = layout.kubeconfig("admin")
        self.ca_file = layout.pki / "ca.crt"
        self.api = self.client("admin")
        self.audit = AuditLog(layout.audit_log)
        self._kubectl = _link(layout, "kubectl")
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @classmethod
    def start(cls, run: Run, *, still_nodes: bool = False) -> ControlPlane:
        """Start one in `run` and wait until it serves.

        Args:
            run: That it belongs to.
            still_nodes: Its nodes send no heartbeats and are never missed.

        Raises:
            ControlPlaneError: A part did not come up; its log is kept.
            MissingBinaryError: A program is not built yet.
        """
        address = run.address(0, 1)
        ports = {name: free_port(address, preferred) for name, preferred in LISTENERS.items()}
        layout = RunLayout(run.directory, address, ports)
        plane = cls(run, layout, _write_credentials(layout))
        plane.launch(still_nodes=still_nodes)
        (run.directory / LAYOUT_FILE).write_text(json.dumps({"address": address, "ports": ports}))
        return plane

    @classmethod
    def join(cls, run: Run) -> ControlPlane:
        """The control plane that another process started in `run`."""
        found = json.loads((run.directory / LAYOUT_FILE).read_text())
        layout = RunLayout(run.directory, found["address"], found["ports"])
        return cls(run, layout, Authority.load(layout.pki))

    def client(self, user: str, agent: str = "hajob-rig") -> ApiClient:
        """A client as one of the control plane's own users, for example admin."""
        pki = self.layout.pki
        return ApiClient(self.server, pki / "ca.crt", pki / f"{user}.crt", pki / f"{user}.key", agent)

    def kubectl(
        self,
        *arguments: str,
        stdin: str | None = None,
        check: bool = True,
        timeout: float = 60.0,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as admin of this cluster, whatever kubeconfig the surroundings have.

        Raises:
            ControlPlaneError: It failed and `check` is set; the message has its words.
        """
        done = subprocess.run(
            self.kubectl_command(*arguments),
            input=stdin,
            text=True,
            capture_output=True,
            timeout=timeout,
            env=self.run.environment(environment),
            check=False,
        )
        if check and done.returncode != 0:
            raise ControlPlaneError(f"kubectl {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
        return done

    def kubectl_command(self, *arguments: str) -> list[str]:
        """The command line of kubectl for this cluster."""
        return [str(self._kubectl), f"--kubeconfig={self.kubeconfig}", *arguments]

    def apply(self, *objects: Mapping[str, object]) -> None:
        """`kubectl apply` of objects, as a user would."""
        self.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def apply_server_side(self, *objects: Mapping[str, object]) -> None:
        """`kubectl apply --server-side`: also of what is too large for the annotation that the other way leaves."""
        told = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=told)

    def wait(
        self, what: str, condition: Callable[[], T | None], seconds: float = 120.0, poll: float = POLL_SECONDS
    ) -> T:
        """Wait until `condition` returns something true, and return that; requests that fail count as "not yet".

        Raises:
            ControlPlaneError: It did not in `seconds`; `what` names it.
        """
        deadline = time.monotonic() + seconds
        problem = ""
        while time.monotonic() < deadline:
            try:
                if found := condition():
                    return found
            except (ApiError, OSError) as error:
                problem = f" (last: {error})"
            time.sleep(poll)
        raise ControlPlaneError(f"waited {seconds:.0f} s in vain for: {what}{problem}")

    def stop(self, seconds: float = 10.0) -> None:
        """End its processes, the clients before the servers; the run's end does the same without asking."""
        for name in reversed(self._processes):
            process = self._processes[name]
            process.terminate()
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()

    def launch(self, *, still_nodes: bool) -> None:
        """Start every part, and wait until all of them serve.

        Raises:
            ControlPlaneError: A part did not come up; its log is kept.
        """
        deadline = time.monotonic() + READY_SECONDS
        self._spawn("etcd", "etcd", components.etcd(self.layout))
        self._spawn("apiserver", "kube-apiserver", components.apiserver(self.layout))
        self._wait("apiserver", lambda: self._answers(self.layout.server, "/readyz"), deadline)
        manager = components.controller_manager(self.layout, still_nodes=still_nodes)
        self._spawn("controller-manager", "kube-controller-manager", manager)
        self._spawn("scheduler", "kube-scheduler", components.scheduler(self.layout))
        self._wait("controller-manager", self._has_service_accounts, deadline)
        self._wait("scheduler", lambda: self._answers(self.layout.url("scheduler"), "/healthz"), deadline)

    def _spawn(self, name: str, program: str, flags: Sequence[str]) -> None:
        self._processes[name] = self.run.spawn(name, [_link(self.layout, program), *flags], LESS_GARBAGE_COLLECTION)

    def _answers(self, server: str, path: str) -> bool:
        pki = self.layout.pki
        client = ApiClient(server, pki / "ca.crt", pki / "admin.crt", pki / "admin.key")
        return bool(client.request("GET", path, timeout=5).get("text") == "ok")

    def _has_service_accounts(self) -> bool:
        return self.api.find("/api/v1/namespaces/default/serviceaccounts/default") is not None

    def _wait(self, name: str, ready: Callable[[], bool], deadline: float) -> None:
        """Wait until `ready` says so; a part that has ended will never be, and an error that stays is told."""
        problem = "it does not answer"
        while time.monotonic() < deadline:
            for part, process in self._processes.items():
                if process.poll() is not None:
                    raise self._failure(part, f"ended with exit code {process.returncode}")
            try:
                if ready():
                    return
                problem = "it is not ready"
            except (ApiError, OSError) as error:
                problem = str(error)
            time.sleep(POLL_SECONDS)
        raise self._failure(name, f"was not ready after {READY_SECONDS:.0f} s: {problem}")

    def _failure(self, name: str, what: str) -> ControlPlaneError:
        kept = self.run.keep_logs()
        lines = (self.run.logs / f"{name}.log").read_text(errors="replace").splitlines()[-8:]
        return ControlPlaneError("\n".join([f"{name} {what}; its log: {kept / name}.log; its last words:", *lines]))


def _link(layout: RunLayout, program: str) -> Path:
    """A program under its plain name in the run: clients call themselves by it in the audit log."""
    link = layout.programs / program
    link.parent.mkdir(exist_ok=True)
    if not link.is_symlink():
        with contextlib.suppress(FileExistsError):  # another process that joined was faster
            link.symlink_to(locate(program))
    return link


def _write_credentials(layout: RunLayout) -> Authority:
    """Make all certificates, keys and kubeconfigs of a control plane, and its configuration files."""
    pki = layout.pki
    pki.mkdir(mode=0o700)
    authority = Authority.create("hajob-local-cluster")
    authority.credential().write(pki, "ca")
    hosts = [layout.address, "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "10.96.0.1"]
    authority.server("control-plane", hosts).write(pki, "server")
    authority.client("etcd-client").write(pki, "etcd-client")
    authority.client("kube-apiserver-kubelet-client", ["system:masters"]).write(pki, "kubelet-client")
    private, public = signing_key()
    (pki / "service-account.key").write_bytes(private)
    (pki / "service-account.pub").write_bytes(public)
    for name, (user, groups) in USERS.items():
        credential = authority.client(user, groups)
        credential.write(pki, name)
        content = kubeconfig(layout.server, authority.credential().certificate, credential)
        layout.kubeconfig(name).write_text(content)
    layout.write_configuration()
    return authority
