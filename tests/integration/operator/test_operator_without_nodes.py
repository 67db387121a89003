"""The operator's process on a real API server that has no nodes: everything that happens before the first step.

Each test has an operator of its own that serves only the test's namespace.
"""

from __future__ import annotations

import json

from hajob.api import constants as names
from hajob.pki.authority_store import SECRET_NAME
from tests.rigs.jobs_on_server import ServedNamespace

WHY = ("available", "can never start")
"""The scheduler's words, or the operator's while tests beside this one have nodes on the same server: none fits."""


def test_a_job_gets_its_pods_and_tells_what_it_waits_for(served: ServedNamespace) -> None:
    served.apply()
    served.until("four rank pods and a coordinator", lambda: len(served.pods()) == 5)
    waits = served.scheduled(*WHY)
    assert served.condition("Accepted")["status"] == "True"
    assert waits["reason"] == ("WaitingForCapacity" if WHY[0] in waits["message"] else "Unsatisfiable")
    assert "4 pods held back" in waits["message"] or WHY[1] in waits["message"]
    assert [each["type"] for each in served.status()["conditions"]] == [
        *("Accepted", "Scheduled", "Running", "Recoverable", "CoordinatorReady", "Shrunk", "Degraded"),
        *("Held", "Suspended", "Complete", "Failed"),
    ]
    effective = served.status()["effective"]
    copies = [{"kind": "Dense", "numRanks": 2, "ranks": ranks} for ranks in ([0, 4], [2, 6], [1, 5], [3, 7])]
    assert effective.pop("copyGroups") == copies
    assert effective == {"chipsPerNode": 2, "worldSize": 8, "extraBytesPerChip": 0, "numCopyGroups": 4}
    printed = served.plane.kubectl("get", "hajobs", "-n", served.namespace).stdout.splitlines()[1].split()
    assert printed[:2] == ["quickstart", "Pending"]
    assert printed[2] in {"NoCapacity", "Unsatisfiable"}
    assert printed[3] == "4/4"


def test_an_impossible_job_is_refused_in_the_servers_words(served: ServedNamespace) -> None:
    served.job["spec"]["template"]["spec"]["containers"][0]["volumeMounts"][0]["name"] = "missing"
    served.apply()
    served.until("a verdict", lambda: served.condition("Accepted").get("status") == "False")
    assert served.condition("Accepted")["reason"] == "PodRefused"
    assert 'volumeMounts[0].name: Not found: "missing"' in served.condition("Accepted")["message"]
    assert served.pods() == {}
    served.until(
        "an Event for people",
        lambda: "PodRefused" in served.plane.kubectl("describe", "hajob", "-n", served.namespace).stdout,
    )


def test_delete_and_apply_at_once_gives_a_clean_new_job(served: ServedNamespace) -> None:
    served.apply()
    served.until("the first job's pods", lambda: len(served.pods()) == 5)
    first = served.pods()
    served.plane.kubectl("delete", "hajob", "quickstart", "-n", served.namespace)
    served.apply()
    served.until("the second job's pods", lambda: len(served.pods()) == 5 and not first.keys() & served.pods().keys())
    served.plane.kubectl("delete", "hajob", "quickstart", "-n", served.namespace)
    assert served.pods() == {}
    served.until("the jobs' Secrets to be collected", lambda: served.secrets() == {SECRET_NAME})


def test_a_job_in_a_quota_that_fits_exactly_goes_on(served: ServedNamespace) -> None:
    """It waits while the quota is too small, is taken over by another operator, and is restarted within it."""
    quotas = f"/api/v1/namespaces/{served.namespace}/resourcequotas"
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"pods": "4"}}}
    served.plane.kubectl("apply", "-n", served.namespace, "-f", "-", stdin=json.dumps(quota))
    counted = "the quota to be counted"
    served.until(counted, lambda: ((served.plane.api.find(f"{quotas}/q") or {}).get("status") or {}).get("hard"))
    served.apply()
    served.until("the wait", lambda: served.condition("Scheduled").get("reason") == "QuotaExceeded")
    assert (
        "exceeded quota: q, requested: pods=1, used: pods=4, limited: pods=4"
        in served.condition("Scheduled")["message"]
    )
    assert served.condition("Accepted")["status"] == "True"
    served.plane.api.merge(f"{quotas}/q", {"spec": {"hard": {"pods": "5"}}})
    served.until("all pods", lambda: len(served.pods()) == 5)
    before = served.pods()
    served.kill_operators()
    served.start_operator()
    served.edit(restartRequestTime="2026-11-22T12:00:00Z")
    served.until("new pods", lambda: len(served.pods()) == 5 and not before.keys() & served.pods().keys())
    assert served.condition("Accepted")["status"] == "True"
    assert "PodRefused" not in served.plane.kubectl("describe", "hajob", "-n", served.namespace).stdout


def test_suspending_takes_the_pods_and_resuming_makes_new_ones(served: ServedNamespace) -> None:
    served.apply()
    served.until("pods", lambda: len(served.pods()) == 5)
    before = served.pods()
    served.edit(suspend=True)
    served.until("the job to be suspended", lambda: served.condition("Suspended").get("status") == "True")
    served.until("no pods", lambda: not served.pods())
    served.edit(suspend=False)
    served.until("pods again", lambda: len(served.pods()) == 5)
    assert not before.keys() & served.pods().keys()
    served.until("the job not to be suspended", lambda: served.condition("Suspended").get("status") == "False")


def test_the_next_leader_goes_on_with_the_same_pods(served: ServedNamespace) -> None:
    served.apply()
    served.until("pods", lambda: len(served.pods()) == 5)
    copy_with_labels_alone(served)
    before, fence = served.pods(), served.status()["fence"]
    served.kill_operators()
    served.start_operator()
    served.edit(recovery={"mode": "Hold"})
    served.until("the next leader's word", lambda: served.condition("Held").get("status") == "True")
    assert served.status()["fence"] > fence
    assert served.pods() == before


def copy_with_labels_alone(served: ServedNamespace) -> None:
    """Somebody's pod that says it is a rank pod of the job, and has failed; the job's controller is not its owner."""
    path = f"/api/v1/namespaces/{served.namespace}/pods"
    real = next(pod for pod in served.plane.api.items(path) if pod["metadata"]["labels"][names.LABEL_ROLE] == "rank")
    spec = {"containers": [{"name": "trainer", "image": "i"}]}
    served.plane.api.create(path, {"metadata": {"name": "copy", "labels": real["metadata"]["labels"]}, "spec": spec})
    served.plane.api.merge(f"{path}/copy/status", {"status": {"phase": "Failed"}})


def test_somebody_elses_job_is_left_alone(served: ServedNamespace) -> None:
    served.job["spec"]["managedBy"] = "somebody.example/else"
    served.apply()
    served.job["metadata"]["name"] = "ours"
    served.job["spec"]["managedBy"] = names.MANAGED_BY
    served.apply()
    served.until("our job's pods", lambda: len(served.pods()) == 5)
    assert all(name.startswith("ours-") for name in served.pods())
    assert served.status() == {}
