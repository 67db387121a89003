"""Pods of a real API server run on process nodes as they run on a kubelet."""

from __future__ import annotations

import base64
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.nodes.conftest import Object, Rig, python, shell


def test_a_pod_with_everything_a_rank_pod_has(rig: Rig) -> None:
    rig.create("secrets", {"metadata": {"name": "tls"}, "stringData": {"ca.crt": "CA", "agent.crt": "CERT"}})
    rig.create("configmaps", {"metadata": {"name": "words"}, "data": {"greeting": "hello"}})
    volumes = [
        {"name": "hajob", "emptyDir": {}},
        {"name": "tls", "secret": {"secretName": "tls", "items": [{"key": "agent.crt", "path": "tls.crt"}]}},
        {
            "name": "all",
            "projected": {
                "sources": [
                    {"serviceAccountToken": {"path": "token", "audience": "somebody", "expirationSeconds": 600}},
                    {"configMap": {"name": "words"}},
                    {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
                ]
            },
        },
    ]
    mount = {"name": "hajob", "mountPath": "/hajob"}
    everywhere = [mount, {"name": "tls", "mountPath": "/tls"}, {"name": "all", "mountPath": "/var/run/all"}]
    rig.run(
        "p",
        metadata={"labels": {"rank": "3"}},
        node=rig.large,
        bound=False,
        volumes=volumes,
        initContainers=[
            shell(
                "install",
                "echo installed > $(DIR)/order",
                env=[{"name": "DIR", "value": "/hajob"}],
                volumeMounts=[mount],
            ),
            shell("agent", "echo agent >> /hajob/order; exec sleep 600", restartPolicy="Always", volumeMounts=[mount]),
            shell("after", "until grep agent /hajob/order; do sleep 0.01; done", volumeMounts=[mount]),
        ],
        containers=[
            shell(
                "main",
                "cat /hajob/order /tls/tls.crt /var/run/all/greeting /var/run/all/name; echo; ls /tls;"
                " cut -d. -f2 < /var/run/all/token > /hajob/claims; env; exec sleep 600",
                volumeMounts=everywhere,
                resources={"limits": {"huawei.com/Ascend910": 2}},
                env=[
                    {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                    {"name": "RANK_LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['rank']"}}},
                    {"name": "GREETING", "valueFrom": {"configMapKeyRef": {"name": "words", "key": "greeting"}}},
                ],
                envFrom=[{"secretRef": {"name": "tls", "prefix": ""}}],
            )
        ],
    )
    text = rig.wait_log("p", "FROM_IMAGE=yes")
    pod = rig.wait_phase("p", "Running")
    address = pod["status"]["podIP"]
    assert text.startswith("installed\nagent\nCERThellop\ntls.crt\n")
    for line in (f"IP={address}", "RANK_LABEL=3", "GREETING=hello", "ASCEND_VISIBLE_DEVICES=0,1", "HOSTNAME=p"):
        assert f"\n{line}\n" in text
    assert address.rsplit(".", 1)[0] == pod["status"]["hostIP"].rsplit(".", 1)[0] != "127.0.0"
    claims = token_claims(rig)
    assert claims["aud"] == ["somebody"]
    assert claims["kubernetes.io"]["pod"]["uid"] == pod["metadata"]["uid"]
    conditions = {condition["type"]: condition["status"] for condition in pod["status"]["conditions"]}
    assert set(conditions.values()) == {"True"}
    assert {"Ready", "Initialized", "ContainersReady", "PodScheduled", "PodReadyToStartContainers"} <= set(conditions)


def token_claims(rig: Rig) -> Any:
    """The payload of the token, from the file the pod wrote into its emptyDir."""
    (path,) = rig.nodes.settings.directory.glob(f"{rig.large}/*/hajob/claims")
    payload = path.read_text().strip()
    return json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))


@pytest.mark.parametrize(
    ("script", "phase", "code", "reason"),
    [
        ("exit 0", "Succeeded", 0, "Completed"),
        ("exit 7", "Failed", 7, "Error"),
        ("kill -9 $$$$", "Failed", 137, "Error"),
    ],
)
def test_how_a_pod_ends(rig: Rig, script: str, phase: str, code: int, reason: str) -> None:
    rig.run("p", script)
    rig.wait_phase("p", phase)
    ended = rig.container("p")["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (code, reason)
    assert ended["startedAt"] <= ended["finishedAt"]


def test_a_wrong_entry_point_is_an_end_with_the_reason(rig: Rig) -> None:
    rig.run("p", container={"command": ["no-such-program"]})
    rig.wait_phase("p", "Failed")
    ended = rig.container("p")["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (128, "ContainerCannotRun")
    assert '"no-such-program": executable file not found in $PATH' in ended["message"]


def test_an_image_that_is_missing_and_then_comes(rig: Rig) -> None:
    rig.run("p", "exit 0", container={"image": "absent:1"})
    waiting = rig.wait_state("p", "waiting", "ImagePullBackOff")
    assert '"absent:1": not among this node set' in waiting["message"]
    assert rig.pod("p")["status"]["phase"] == "Pending"
    rig.control.set_image("absent:1", rig.nodes.settings.images["shell:1"])
    rig.wait_phase("p", "Succeeded")


def test_a_volume_whose_secret_comes_later(rig: Rig) -> None:
    volume = {"name": "late", "secret": {"secretName": "late"}}
    rig.run("p", "cat /late/a", volumes=[volume], container={"volumeMounts": [{"name": "late", "mountPath": "/late"}]})
    rig.wait("the failed mount to be told", lambda: "FailedMount" in reasons(rig))
    assert rig.container("p")["state"] == {"waiting": {"reason": "ContainerCreating"}}
    rig.create("secrets", {"metadata": {"name": "late"}, "stringData": {"a": "here"}})
    rig.wait_phase("p", "Succeeded")
    rig.wait_log("p", "here")


def test_a_changed_secret_reaches_the_pod_a_deleted_one_stays(rig: Rig) -> None:
    rig.create("secrets", {"metadata": {"name": "turning"}, "stringData": {"a": "first"}})
    volume, mount = {"name": "v", "secret": {"secretName": "turning"}}, {"name": "v", "mountPath": "/v"}
    script = "while :; do cat /v/a; echo; sleep 0.1; done"
    rig.run("p", script, volumes=[volume], container={"volumeMounts": [mount]})
    rig.wait_log("p", "first")
    path = rig.path("turning", "secrets")
    rig.plane.api.delete(path)
    rig.create("secrets", {"metadata": {"name": "turning"}, "stringData": {"a": "second"}})
    rig.wait_log("p", "second")
    rig.plane.api.delete(path)
    time.sleep(1)  # three looks at what is not there
    assert rig.container("p")["state"].get("running")
    rig.create("secrets", {"metadata": {"name": "turning"}, "stringData": {"a": "third"}})
    rig.wait_log("p", "third")


def reasons(rig: Rig) -> set[str]:
    return {event["reason"] for event in rig.plane.api.items(rig.path(kind="events"))}


def test_an_environment_whose_secret_comes_later(rig: Rig) -> None:
    env = [{"name": "V", "valueFrom": {"secretKeyRef": {"name": "late", "key": "a"}}}]
    rig.run("p", "echo got $V", container={"env": env})
    waiting = rig.wait_state("p", "waiting", "CreateContainerConfigError")
    assert waiting["message"] == 'secret "late" not found'
    rig.create("secrets", {"metadata": {"name": "late"}, "stringData": {"a": "it"}})
    rig.wait_log("p", "got it")


def test_restart_always_with_back_off_and_previous_log(rig: Rig) -> None:
    rig.run("p", "echo run; exit 3", restartPolicy="Always")
    rig.wait_state("p", "waiting", "CrashLoopBackOff")
    container = rig.container("p")
    assert container["restartCount"] >= 1
    assert container["lastState"]["terminated"]["exitCode"] == 3
    assert rig.pod("p")["status"]["phase"] == "Running"
    assert rig.plane.api.get(rig.path("p") + "/log", previous="true")["text"] == "run\n"


def test_restart_on_failure_until_it_succeeds(rig: Rig) -> None:
    mount = {"volumeMounts": [{"name": "d", "mountPath": "/d"}]}
    script = "test -e /d/second && exit 0; touch /d/second; exit 1"
    rig.run("p", script, restartPolicy="OnFailure", volumes=[{"name": "d", "emptyDir": {}}], container=mount)
    rig.wait_phase("p", "Succeeded")
    assert rig.container("p")["restartCount"] == 1


def test_a_failing_init_container_fails_a_pod_without_restarts(rig: Rig) -> None:
    rig.run("p", "exit 0", initContainers=[shell("init", "exit 4"), shell("next", "exit 0")])
    rig.wait_phase("p", "Failed")
    assert rig.container("p", "init")["state"]["terminated"]["exitCode"] == 4
    assert rig.container("p", "next")["state"]["waiting"]["reason"] == "PodInitializing"


def test_an_init_container_is_retried_where_the_pod_may_restart(rig: Rig) -> None:
    mount = {"volumeMounts": [{"name": "d", "mountPath": "/d"}]}
    init = shell("init", "test -e /d/x && exit 0; touch /d/x; exit 1", **mount)
    rig.run("p", "exit 0", restartPolicy="OnFailure", volumes=[{"name": "d", "emptyDir": {}}], initContainers=[init])
    rig.wait_phase("p", "Succeeded")
    assert rig.container("p", "init")["restartCount"] == 1


def test_readiness_comes_and_goes(rig: Rig) -> None:
    mounts = {"volumeMounts": [{"name": "d", "mountPath": "/d"}]}
    probe = {"exec": {"command": ["test", "-e", "/d/ready"]}, "periodSeconds": 1, "failureThreshold": 1}
    rig.run(
        "p", "exec sleep 600", volumes=[{"name": "d", "emptyDir": {}}], container={**mounts, "readinessProbe": probe}
    )
    rig.wait_state("p", "running")
    assert (rig.container("p")["ready"], rig.container("p")["started"]) == (False, True)
    (directory,) = (path for path in rig.nodes.settings.directory.glob(f"{rig.plain}/*/d") if path.is_dir())
    (directory / "ready").touch()
    rig.wait("ready", lambda: rig.container("p")["ready"])
    (directory / "ready").unlink()
    rig.wait("not ready", lambda: not rig.container("p")["ready"])


SERVER = (
    "import os, socket; s = socket.create_server((os.environ['IP'], 8080))\n"
    "while True:\n c, _ = s.accept(); c.recv(4096); c.sendall(b'HTTP/1.0 200 OK\\r\\n\\r\\n'); c.close()"
)
IP = [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]


@pytest.mark.parametrize("probe", [{"httpGet": {"port": "web", "path": "/x"}}, {"tcpSocket": {"port": 8080}}])
def test_network_probes_ask_at_the_pod_s_address(rig: Rig, probe: Object) -> None:
    ports = [{"name": "web", "containerPort": 8080}]
    startup = {**probe, "periodSeconds": 1, "failureThreshold": 30}
    fields = {"readinessProbe": {**probe, "periodSeconds": 1}, "startupProbe": startup}
    rig.run("p", containers=[python("main", SERVER, env=IP, ports=ports, **fields)])
    rig.wait("ready", lambda: rig.container("p").get("ready"))
    assert rig.container("p")["started"]


def test_a_container_that_fails_its_liveness_probe_is_restarted(rig: Rig) -> None:
    probe = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}
    rig.run("p", "exec sleep 600", restartPolicy="Always", container={"livenessProbe": probe})
    rig.wait("a restart", lambda: rig.container("p").get("restartCount"))
    assert "Unhealthy" in rig.wait("the event", lambda: reasons(rig) if "Unhealthy" in reasons(rig) else None)


def test_termination_is_asked_for_first_and_sidecars_go_last(rig: Rig) -> None:
    mount = {"volumeMounts": [{"name": "d", "mountPath": "/d"}]}
    told = "trap 'echo {0} >> /d/order; exit 0' TERM; echo up; while :; do sleep 0.02; done"
    claim(rig, "d")
    rig.run(
        "p",
        terminationGracePeriodSeconds=20,
        volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "d"}}],
        initContainers=[shell(name, told.format(name), restartPolicy="Always", **mount) for name in ("s1", "s2")],
        containers=[shell("main", told.format("main"), **mount)],
    )
    rig.wait_phase("p", "Running")
    for name in ("s1", "s2", "main"):
        rig.wait_log("p", "up", name)
    rig.delete("p")
    rig.wait_gone("p")
    assert kept(rig, "d", "order").split() == ["main", "s2", "s1"]


def claim(rig: Rig, name: str) -> None:
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    rig.create("persistentvolumeclaims", {"metadata": {"name": name}, "spec": spec})


def kept(rig: Rig, name: str, file: str) -> str:
    """A file on the volume of a claim; any node set of the control plane may have made that, if it was the first."""
    claim = rig.plane.api.get(f"/api/v1/namespaces/{rig.namespace}/persistentvolumeclaims/{name}")
    volume = rig.plane.api.find(f"/api/v1/persistentvolumes/{claim['spec'].get('volumeName')}")
    places = [rig.nodes.settings.directory / f"claims/{rig.namespace}_{name}"]
    places += [Path(volume["spec"]["hostPath"]["path"])] if volume else []
    return next(path.read_text() for path in (place / file for place in places) if path.exists())


def test_a_claim_is_bound_and_shared_by_pods_of_all_nodes(rig: Rig) -> None:
    claim(rig, "shared")
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "shared"}}
    mounts = {"volumeMounts": [{"name": "v", "mountPath": "/ckpt", "subPath": "job"}]}
    rig.run("writer", "echo weights > /ckpt/f", bound=False, volumes=[volume], container=mounts)
    rig.wait_phase("writer", "Succeeded")
    rig.run("reader", "cat /ckpt/f", node=rig.small, bound=False, volumes=[volume], container=mounts)
    rig.wait_log("reader", "weights")


def test_a_host_path_is_what_the_node_set_has_for_it(rig: Rig) -> None:
    volume = {"name": "v", "hostPath": {"path": f"/var/lib/shared/{rig.namespace}"}}
    mounts = {"volumeMounts": [{"name": "v", "mountPath": "/data"}]}
    rig.run("writer", "echo here > /data/f", volumes=[volume], container=mounts)
    rig.wait_phase("writer", "Succeeded")
    (real,) = rig.nodes.settings.host_paths.values()
    assert (real / rig.namespace / "f").read_text() == "here\n"
    rig.run("reader", "cat /data/f", node=rig.small, volumes=[volume], container=mounts)
    rig.wait_log("reader", "here")


def test_a_host_path_that_must_be_there_is_waited_for(rig: Rig) -> None:
    volume = {"name": "v", "hostPath": {"path": f"/var/lib/shared/late-{rig.namespace}", "type": "Directory"}}
    rig.run("p", "exit 0", volumes=[volume])
    rig.wait("the failed mount to be told", lambda: "FailedMount" in reasons(rig))
    (real,) = rig.nodes.settings.host_paths.values()
    (real / f"late-{rig.namespace}").mkdir(parents=True)
    rig.wait_phase("p", "Succeeded")


def test_a_claim_nobody_binds_is_a_directory_of_the_node_set(rig: Rig) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}}
    rig.create("persistentvolumeclaims", {"metadata": {"name": "unbound"}, "spec": spec})
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "unbound"}}
    mounts = {"volumeMounts": [{"name": "v", "mountPath": "/data"}]}
    rig.run("p", "echo here > /data/f", volumes=[volume], container=mounts)
    rig.wait_phase("p", "Succeeded")
    assert (rig.nodes.settings.directory / f"claims/{rig.namespace}_unbound/f").exists()


def test_hooks_and_signals_of_termination(rig: Rig) -> None:
    claim(rig, "d")
    lifecycle = {"preStop": {"exec": {"command": ["sh", "-c", "echo hook >> /d/order"]}}}
    rig.run(
        "p",
        "trap 'echo term >> /d/order; exit 0' TERM; echo up; while :; do sleep 0.02; done",
        terminationGracePeriodSeconds=20,
        volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "d"}}],
        container={"volumeMounts": [{"name": "d", "mountPath": "/d"}], "lifecycle": lifecycle},
    )
    rig.wait_log("p", "up")
    rig.delete("p")
    rig.wait_gone("p")
    assert kept(rig, "d", "order") == "hook\nterm\n"


def test_what_does_not_go_is_killed_with_its_children(rig: Rig) -> None:
    rig.run("p", "trap '' TERM; sleep 600 & setsid sleep 601 & echo up; while :; do wait; done")
    rig.wait_log("p", "up")
    pids = rig.pids("p")
    assert len(pids) == 3
    rig.delete("p")
    rig.wait_gone("p")
    assert [pid for pid in pids if running(pid)] == []


def test_what_the_first_process_leaves_behind_dies_with_it(rig: Rig) -> None:
    mount = {"volumeMounts": [{"name": "d", "mountPath": "/d"}]}
    script = "setsid sh -c 'sleep 600 & echo $! > /d/pid; wait' & until [ -s /d/pid ]; do sleep 0.01; done; cat /d/pid"
    rig.run("p", script, volumes=[{"name": "d", "emptyDir": {}}], container=mount)
    rig.wait_phase("p", "Succeeded")
    pid = int(rig.wait_log("p", "\n").split()[0])
    assert not running(pid)


def running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_forced_deletion_ends_the_processes_too(rig: Rig) -> None:
    rig.run("p", "trap '' TERM; echo up; while :; do sleep 0.05; done", terminationGracePeriodSeconds=600)
    rig.wait_log("p", "up")
    (first, *_) = rig.pids("p")
    rig.delete("p", gracePeriodSeconds=0)
    rig.wait("the process to end", lambda: not running(first))


def test_a_second_deletion_shortens_the_grace_period(rig: Rig) -> None:
    rig.run("p", "trap '' TERM; echo up; while :; do sleep 0.05; done", terminationGracePeriodSeconds=600)
    rig.wait_log("p", "up")
    rig.delete("p")
    rig.delete("p", gracePeriodSeconds=1)
    rig.wait_gone("p")


def test_a_pod_deleted_and_made_again_at_once_is_another_pod(rig: Rig) -> None:
    rig.run("p", "trap '' TERM; echo up; while :; do sleep 0.05; done", terminationGracePeriodSeconds=600)
    rig.wait_log("p", "up")
    rig.delete("p", gracePeriodSeconds=0)
    rig.run("p", "echo again; exec sleep 600")
    rig.wait_log("p", "again")
    assert rig.wait_phase("p", "Running")["status"]["containerStatuses"][0]["restartCount"] == 0


def test_the_active_deadline_fails_the_pod(rig: Rig) -> None:
    rig.run("p", "exec sleep 600", activeDeadlineSeconds=1)
    assert rig.wait_phase("p", "Failed")["status"]["reason"] == "DeadlineExceeded"


def test_last_words_become_the_message(rig: Rig) -> None:
    rig.run("p", "echo broken > /dev/termination-log; exit 1")
    rig.run("q", "echo from the log; exit 1", container={"terminationMessagePolicy": "FallbackToLogsOnError"})
    rig.wait_phase("p", "Failed")
    assert rig.container("p")["state"]["terminated"]["message"] == "broken"
    rig.wait_phase("q", "Failed")
    assert rig.container("q")["state"]["terminated"]["message"] == "from the log"


def test_kubectl_logs(rig: Rig) -> None:
    rig.run("p", "for i in 1 2 3; do echo line $i; done; sleep 0.5; echo line 4")
    followed = rig.plane.kubectl("logs", "-n", rig.namespace, "p", "-f", "--pod-running-timeout=60s").stdout
    assert followed == "line 1\nline 2\nline 3\nline 4\n"
    assert rig.plane.kubectl("logs", "-n", rig.namespace, "p", "--tail=1").stdout == "line 4\n"
    assert rig.plane.kubectl("logs", "-n", rig.namespace, "p", "--limit-bytes=4").stdout == "line"


def test_kubectl_exec(rig: Rig) -> None:
    env = [{"name": "X", "value": "42"}]
    rig.run("p", "exec sleep 600", container={"env": env})
    rig.wait_phase("p", "Running")

    def execute(*command: str, stdin: str | None = None) -> tuple[int, str, str]:
        flags = ["-i"] if stdin is not None else []
        done = rig.plane.kubectl("exec", "-n", rig.namespace, *flags, "p", "--", *command, check=False, stdin=stdin)
        return done.returncode, done.stdout, done.stderr

    code, output, errors = execute("sh", "-c", "echo out $X; echo err >&2; exit 7")
    assert (code, output) == (7, "out 42\n")
    assert errors.startswith("err\n")
    assert execute("cat", stdin="what goes in") == (0, "what goes in", "")
    code, _, errors = execute("no-such-program")
    assert code == 1
    assert 'exec: "no-such-program": executable file not found in $PATH' in errors
    assert rig.container("p")["restartCount"] == 0


def test_a_service_account_token_works_against_the_server(rig: Rig) -> None:
    script = (
        "import os, ssl, urllib.request as u\n"
        "d = os.environ['TOKENS']; t = open(d + '/token').read()\n"
        "c = ssl.create_default_context(cafile=d + '/ca.crt')\n"
        "s = 'https://' + os.environ['KUBERNETES_SERVICE_HOST'] + ':' + os.environ['KUBERNETES_SERVICE_PORT']\n"
        "r = u.Request(s + '/apis/authentication.k8s.io/v1/selfsubjectreviews', method='POST', data=b'{}',"
        " headers={'Authorization': 'Bearer ' + t, 'Content-Type': 'application/json'})\n"
        "u.install_opener(u.build_opener(u.ProxyHandler({}), u.HTTPSHandler(context=c)))\n"
        "print(u.urlopen(r).read().decode())"
    )
    env = [{"name": "TOKENS", "value": "/var/run/secrets/kubernetes.io/serviceaccount"}]
    rig.run("p", containers=[python("main", script, env=env)])
    assert f"system:serviceaccount:{rig.namespace}:default" in rig.wait_log("p", "userInfo")


def test_a_node_acts_under_its_own_name(rig: Rig) -> None:
    rig.run("p", "exit 0")
    rig.wait_phase("p", "Succeeded")
    writers = {write.user for write in rig.plane.audit.writes() if write.name == "p"}
    assert f"system:node:{rig.plain}" in writers
    assert not any("process-nodes-install" in user for user in writers)
