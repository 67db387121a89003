"""The command lines of etcd, the API server, the controller manager and the scheduler.

Apart from the control plane that starts them, so that every flag stands with its reason in one place.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},  # all that an operator in a pod asks
        {"level": "None", "verbs": ["get", "list"]},  # of others only writes and watches are ever counted
        {"level": "Metadata"},
    ],
}

SCHEDULER_CONFIGURATION = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "leaderElection": {"leaderElect": False},
    # A pod that found no node is tried again soon: the defaults (1 s, then up to 10 s) are made for big clusters.
    "podInitialBackoffSeconds": 1,
    "podMaxBackoffSeconds": 2,
}

# Controllers that only make noise here: EndpointSlices refuse loopback addresses, and there are no routes, no clouds
# and no volumes to attach.
SWITCHED_OFF = (
    "endpoints-controller",
    "endpointslice-controller",
    "endpointslice-mirroring-controller",
    "horizontal-pod-autoscaler-controller",
    "service-cidr-controller",
)

# For thousands of nodes that nothing happens to: nobody waits for their heartbeats, and the controller that writes into
# every node how long its kubelet may cache, again and again while they grow in number, has no kubelets to tell.
STILL_NODES = (
    "--node-startup-grace-period=24h",
    "--node-monitor-grace-period=24h",
    "--controllers=-ttl-controller",
)


@dataclass(frozen=True)
class RunLayout:
    """Where the parts of one control plane are.

    Attributes:
        directory: Holds pki/, kubeconfig files, etcd's data and the audit log.
        address: Loopback address that every part listens on.
        ports: TCP port of each listener, by name.
    """

    directory: Path
    address: str
    ports: Mapping[str, int]

    @property
    def pki(self) -> Path:
        """Directory of certificates and keys."""
        return self.directory / "pki"

    @property
    def programs(self) -> Path:
        """Programs of the run under their plain names."""
        return self.directory / "bin"

    @property
    def audit_log(self) -> Path:
        """The API server's audit log, one JSON object per line."""
        return self.directory / "logs" / "audit.jsonl"

    @property
    def server(self) -> str:
        """URL of the API server."""
        return f"https://{self.address}:{self.ports['apiserver']}"

    def url(self, listener: str) -> str:
        """URL of a listener by its name in `ports`."""
        return f"https://{self.address}:{self.ports[listener]}"

    def kubeconfig(self, user: str) -> Path:
        """The kubeconfig of one of the control plane's users."""
        return self.directory / f"{user}.kubeconfig"

    def write_configuration(self) -> None:
        """Write the files that the command lines name."""
        (self.directory / "audit-policy.json").write_text(json.dumps(AUDIT_POLICY))
        scheduler = SCHEDULER_CONFIGURATION | {
            "clientConnection": {"kubeconfig": str(self.kubeconfig("scheduler")), "qps": 200, "burst": 400}
        }
        (self.directory / "scheduler.json").write_text(json.dumps(scheduler))


def etcd(layout: RunLayout) -> list[str]:
    """One member, TLS on both ports; no fsync, because nothing of it outlives the run."""
    client, peer = layout.url("etcd"), layout.url("etcd-peer")
    pki = layout.pki
    return [
        "--name=local",
        f"--data-dir={layout.directory / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=local={peer}",
        f"--cert-file={pki / 'server.crt'}",
        f"--key-file={pki / 'server.key'}",
        f"--trusted-ca-file={pki / 'ca.crt'}",
        "--client-cert-auth",
        f"--peer-cert-file={pki / 'server.crt'}",
        f"--peer-key-file={pki / 'server.key'}",
        f"--peer-trusted-ca-file={pki / 'ca.crt'}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def apiserver(layout: RunLayout) -> list[str]:
    """With the node authorizer and NodeRestriction, so that process nodes have a node's rights and no more."""
    pki = layout.pki
    return [
        f"--bind-address={layout.address}",
        # Given, because else the server looks for an address that is not a loopback one, and may find none.
        f"--advertise-address={layout.address}",
        f"--external-hostname={layout.address}",
        f"--secure-port={layout.ports['apiserver']}",
        "--endpoint-reconciler-type=none",  # the endpoints of Service kubernetes may not be loopback addresses
        f"--etcd-servers={layout.url('etcd')}",
        f"--etcd-cafile={pki / 'ca.crt'}",
        f"--etcd-certfile={pki / 'etcd-client.crt'}",
        f"--etcd-keyfile={pki / 'etcd-client.key'}",
        f"--tls-cert-file={pki / 'server.crt'}",
        f"--tls-private-key-file={pki / 'server.key'}",
        f"--client-ca-file={pki / 'ca.crt'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={pki / 'service-account.pub'}",
        f"--service-account-signing-key-file={pki / 'service-account.key'}",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-certificate-authority={pki / 'ca.crt'}",
        f"--kubelet-client-certificate={pki / 'kubelet-client.crt'}",
        f"--kubelet-client-key={pki / 'kubelet-client.key'}",
        f"--audit-policy-file={layout.directory / 'audit-policy.json'}",
        f"--audit-log-path={layout.audit_log}",
        "--audit-log-mode=blocking",  # written before the answer is: a count after an answer is complete
        "--audit-log-maxsize=100000",  # megabytes, that is: never rotated
        "--profiling=false",
    ]


def controller_manager(layout: RunLayout, *, still_nodes: bool = False) -> list[str]:
    """All controllers that do something here, each with a service account of its own."""
    kubeconfig = layout.kubeconfig("controller-manager")
    pki = layout.pki
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--bind-address={layout.address}",
        f"--secure-port={layout.ports['controller-manager']}",
        f"--tls-cert-file={pki / 'server.crt'}",
        f"--tls-private-key-file={pki / 'server.key'}",
        "--leader-elect=false",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={pki / 'service-account.key'}",
        f"--root-ca-file={pki / 'ca.crt'}",
        f"--cluster-signing-cert-file={pki / 'ca.crt'}",
        f"--cluster-signing-key-file={pki / 'ca.key'}",
        "--controllers=*," + ",".join(f"-{name}" for name in SWITCHED_OFF),
        "--kube-api-qps=200",
        "--kube-api-burst=400",
        "--profiling=false",
        *(STILL_NODES if still_nodes else ()),
    ]


def scheduler(layout: RunLayout) -> list[str]:
    """The default scheduler."""
    kubeconfig = layout.kubeconfig("scheduler")
    return [
        f"--config={layout.directory / 'scheduler.json'}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--bind-address={layout.address}",
        f"--secure-port={layout.ports['scheduler']}",
        f"--tls-cert-file={layout.pki / 'server.crt'}",
        f"--tls-private-key-file={layout.pki / 'server.key'}",
    ]
