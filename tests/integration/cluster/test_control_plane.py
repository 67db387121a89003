"""The local control plane is a cluster as far as Hajob needs one."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.bootstrap.paths import CHECKOUT
from e2e.cluster.audit import now
from e2e.cluster.control_plane import ControlPlane, ControlPlaneError
from e2e.cluster.processes import marked
from e2e.cluster.rest import ApiClient, ApiError


def config_map(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}}


def test_objects_go_with_their_owner(control_plane: ControlPlane, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    owner = control_plane.api.create(path, config_map("owner"))
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    owned = config_map("owned") | {"metadata": {"name": "owned", "ownerReferences": [reference]}}
    control_plane.api.create(path, owned)

    control_plane.api.delete(f"{path}/owner")

    control_plane.wait("garbage collection", lambda: control_plane.api.find(f"{path}/owned") is None)


def test_writes_are_counted_by_user_and_agent(control_plane: ControlPlane, namespace: str) -> None:
    since = now()
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    client = control_plane.client("admin", agent="counted/1")
    client.create(path, config_map("one"))
    client.merge(f"{path}/one", {"data": {"a": "c"}})
    with pytest.raises(ApiError, match="409 AlreadyExists"):
        client.create(path, config_map("one"))
    client.request("POST", path, config_map("dry"), query={"dryRun": "All"})
    lease = {"metadata": {"name": "lease"}}
    client.create(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases", lease)
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "x"}}
    client.create("/apis/authentication.k8s.io/v1/tokenreviews", review)

    found = control_plane.audit.writes(since, agent="counted/1", user="kubernetes-admin")

    assert [(each.verb, each.resource, each.status) for each in found] == [
        ("create", "configmaps", 201),
        ("patch", "configmaps", 200),
        ("create", "configmaps", 409),
    ]
    others = [each.kind for each in control_plane.audit.requests(since, agent="counted/1") if each.kind != "write"]
    assert others == ["dry-run", "lease", "review"]


def test_a_node_has_a_nodes_rights_and_no_more(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> None:
    credential = control_plane.authority.node_client("some-node")
    certificate, key = credential.write(tmp_path, "node")
    node = ApiClient(control_plane.server, control_plane.ca_file, certificate, key)

    node.create("/api/v1/nodes", {"metadata": {"name": "some-node"}})

    with pytest.raises(ApiError, match="403 Forbidden"):
        node.create(f"/api/v1/namespaces/{namespace}/configmaps", config_map("no"))
    control_plane.api.delete("/api/v1/nodes/some-node")


def test_kubectl_never_uses_somebody_elses_kubeconfig(
    control_plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = tmp_path / "foreign"
    foreign.write_text("not a kubeconfig")
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube/config").write_text("not a kubeconfig")
    monkeypatch.setenv("KUBECONFIG", str(foreign))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")

    assert "default" in control_plane.kubectl("get", "namespaces").stdout

    assert list((tmp_path / ".kube").iterdir()) == [tmp_path / ".kube/config"]
    with pytest.raises(ControlPlaneError, match=r"kubectl get nonsense: .*doesn't have a resource type"):
        control_plane.kubectl("get", "nonsense")


def test_everything_listens_on_addresses_of_the_run_only(control_plane: ControlPlane) -> None:
    for port in control_plane.layout.ports.values():
        with socket.socket() as probe, pytest.raises(ConnectionRefusedError):
            probe.connect(("127.0.0.1", port))
    assert control_plane.server.startswith(f"https://127.{control_plane.run.block}.0.1:")


FAILING = """
import sys
from pathlib import Path
from e2e.cluster import components
from e2e.cluster.control_plane import ControlPlane, ControlPlaneError
from e2e.cluster.run import Run
right = components.etcd
components.etcd = lambda layout: [*right(layout), "--data-dir=/dev/null/x"]
run = Run.start("test")
try:
    ControlPlane.start(run)
except ControlPlaneError as error:
    print(error, flush=True)
run.close()
"""


def test_a_part_that_fails_is_named_and_its_log_kept(tmp_path: Path, control_plane: ControlPlane) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "bin").symlink_to(Path(os.path.realpath(control_plane.layout.directory / "bin/etcd")).parent)
    environment = os.environ | {"HAJOB_CACHE": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", FAILING], cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=True
    )

    assert "etcd ended with exit code" in done.stdout
    assert "/dev/null/x" in done.stdout
    log = Path(done.stdout.split("its log: ")[1].split(";")[0])
    assert "/dev/null/x" in log.read_text()


def test_a_process_that_joins_sees_the_same_cluster(control_plane: ControlPlane) -> None:
    joined = ControlPlane.join(control_plane.run.join(control_plane.run.directory))

    assert joined.server == control_plane.server
    assert json.loads(joined.kubectl("get", "namespace", "default", "-o", "json").stdout)["kind"] == "Namespace"
    assert len(list(marked(joined.run.identity))) >= 4
