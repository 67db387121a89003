"""A controller between a fake API server and a scripted coordinator: events in, levels out, nothing lost by a crash."""

from __future__ import annotations

from collections.abc import AsyncIterator
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from hajob.api import constants as names
from hajob.api.conditions import ConditionType
from hajob.api.job import HATrainingJob
from hajob.capacity.avoided_nodes import AvoidedNodes
from hajob.job import observe
from hajob.job.status.freshness import RARELY_SECONDS
from hajob.job.status.journal import read_journal
from hajob.kube.client import ApiError
from hajob.plan import events
from hajob.plan.state import JobPhase, Shrunk
from hajob.protocol import sidecar_pb2 as wire
from hajob.sources.pod import PodView, pod_view_of
from tests.rigs.fake_kube import unreachable
from tests.rigs.job_controller import (
    NAMESPACE,
    ControllerTown,
    condition_of,
    death_of_rank,
    end_pods,
    incarnations_of_node_1,
    settle_town,
)
from tests.rigs.malformed_templates import TRAINER, job_with
from tests.rigs.told_events import tell


@pytest.fixture
async def town() -> AsyncIterator[ControllerTown]:
    made = ControllerTown()
    yield made
    await made.controller.stop_managing()


async def test_every_condition_is_there_from_the_first_visit(town: ControllerTown) -> None:
    await settle_town(town)
    of_all = [str(kind) for kind in ConditionType if kind is not ConditionType.SPARES_READY]
    assert [each["type"] for each in town.status()["conditions"]] == of_all, "it asks for no spare nodes"


async def test_the_refusal_of_a_template_is_told_whatever_stands_in_it() -> None:
    mounts = [{"name": "checkpoints", "mountPath": "/ckpt"}, {"name": "checkpoints"}]
    raw = job_with((*TRAINER, "volumeMounts"), mounts)
    raw["spec"]["output"] = {"path": "/output"}
    town = ControllerTown(raw)
    await settle_town(town)
    (accepted,) = [one for one in town.status()["conditions"] if one["type"] == "Accepted"]
    await town.controller.stop_managing()
    assert (accepted["status"], accepted["reason"]) == ("False", "Invalid")


async def test_a_new_job_gets_its_pods_and_is_started(town: ControllerTown) -> None:
    await town.train()
    assert sorted(pod.role for pod in town.pods()) == ["coordinator", *["rank"] * 4]
    assert town.links[0].orders[-1].action == wire.START
    assert [pod.node_rank for pod in town.links[0].assignments[-1].pods] == [0, 1, 2, 3]
    assert town.status()["summary"]["state"] == "Running"


async def test_the_order_leaves_in_the_call_in_which_the_fault_came(town: ControllerTown) -> None:
    await town.train()
    before = len(town.links[0].orders)
    town.controller.coordinator.apply_report(
        wire.Report(
            sequence=9,
            state=wire.CoordinatorState(controller_ready=True, attempt=1, step=5),
            facts=[death_of_rank(5)],
        )
    )
    order = town.links[0].orders[before]  # nothing was awaited
    assert (order.action, list(order.lost_ranks), list(order.restart_ranks)) == (wire.IN_PLACE, [5], [5])


@pytest.mark.parametrize(("comes", "action"), [(True, "InPlace"), (False, "Restart")])
async def test_a_fault_told_with_the_controllers_loss(town: ControllerTown, comes: bool, action: str) -> None:
    await town.train()
    await town.report(death_of_rank(5), step=5, controller_ready=False, taking_over=comes, conversation="Lost")
    assert town.status()["incidents"][0]["action"] == action


async def test_a_pod_is_replaced_only_after_the_decision_is_written(town: ControllerTown) -> None:
    await town.train()
    lost = next(pod for pod in town.pods() if pod.node_rank == 0)
    await town.report(wire.Fact(id="silent", kind=wire.AGENT_SILENT, node_rank=0, ranks=[0, 1], incarnation=1), step=5)
    made = [pod for pod in town.pods() if pod.node_rank == 0 and pod.incarnation == 2]
    assert len(made) == 1
    assert lost.name not in {pod.name for pod in town.pods()}
    incident = town.status()["incidents"][0]
    assert (incident["action"], incident["cause"]["nodeName"]) == ("Replace", lost.node_name)
    order = town.links[0].orders[-1]
    assert (order.action, list(order.replaced_nodes)) == (wire.REPLACE, [0])


async def moving(town: ControllerTown) -> PodView:
    """A job that trains and whose node rank 1 is being moved; its first pod."""
    await town.train()
    first = next(pod for pod in town.pods() if pod.node_rank == 1)
    tell(town, events.MigrateRequested(nodes=(1,)))
    await settle_town(town)
    return first


async def test_a_move_makes_a_second_pod_on_another_node(town: ControllerTown) -> None:
    first = await moving(town)
    assert incarnations_of_node_1(town) == [1, 2]
    (second,) = [
        body
        for (kind, _, _), body in town.kube.objects.items()
        if kind == "pods" and pod_view_of(body).incarnation == 2
    ]
    assert first.node_name in str(second["spec"]["affinity"]["nodeAffinity"])
    await town.run_pods()
    told = [(pod.node_rank, pod.incarnation) for pod in town.links[0].assignments[-1].pods]
    assert told == [(0, 1), (1, 1), (1, 2), (2, 1), (3, 1)]
    assert town.links[0].orders[-1].action == wire.MIGRATE


async def test_when_a_move_is_done_the_first_pod_goes(town: ControllerTown) -> None:
    await moving(town)
    await town.run_pods()
    await town.report(step=9, milestones=[wire.Milestone(kind=wire.RESUMED, incarnation=2, step=9)])
    assert town.controller.state.phase is JobPhase.RUNNING
    assert incarnations_of_node_1(town) == [2]
    assert len([pod for pod in town.pods() if not pod.deleting]) == 5


async def test_when_a_move_is_given_up_the_second_pod_goes(town: ControllerTown) -> None:
    await moving(town)
    await town.run_pods()
    town.controller.apply_report(
        wire.Report(sequence=8, state=wire.CoordinatorState(controller_ready=True, attempt=1, step=6))
    )
    await town.clock.advance(300.0)
    await settle_town(town)
    assert town.controller.state.phase is JobPhase.RUNNING
    assert incarnations_of_node_1(town) == [1]


async def test_a_new_operator_goes_on_with_a_move(town: ControllerTown) -> None:
    await moving(town)
    await town.run_pods()
    await town.controller.stop_managing()
    town.open()
    await settle_town(town)
    assert incarnations_of_node_1(town) == [1, 2]
    await town.report(step=9, milestones=[wire.Milestone(kind=wire.RESUMED, incarnation=2, step=9)])
    assert incarnations_of_node_1(town) == [2]


async def test_nothing_is_started_in_a_pod_being_deleted(town: ControllerTown) -> None:
    await town.train()
    body = next(body for (kind, _, _), body in town.kube.objects.items() if kind == "pods" and "-2-" in str(body))
    dying = {**body, "metadata": {**body["metadata"], "deletionTimestamp": "2026-11-22T12:00:00Z"}}
    town.controller.apply_pod(pod_view_of(dying))
    await town.report(death_of_rank(4), step=5)  # ended by the kubelet
    order = town.links[0].orders[-1]
    assert (order.action, list(order.replaced_nodes), list(order.restart_ranks)) == (wire.REPLACE, [2], [])


async def test_the_status_says_when_an_action_is_used_up(town: ControllerTown) -> None:
    body = deepcopy(town.stored())
    body["spec"]["recovery"] = {"actions": [{"name": "InPlace", "maxCount": 1}, {"name": "Restart"}]}
    body["metadata"]["generation"] = 2
    town.controller.apply_job(HATrainingJob.from_object(body))
    await town.train()
    await town.report(death_of_rank(4), step=5)
    for kind in (wire.STOPPED, wire.REPLACEMENTS_READY, wire.NAMED, wire.RESUMED, wire.RESULT):
        await town.report(step=6, milestones=[wire.Milestone(kind=kind, incarnation=2, step=6, strategy="recover")])
    await town.clock.advance(10)
    told = {one["action"]: [unmet["name"] for unmet in one.get("unmet", [])] for one in town.status()["recoverability"]}
    assert "BudgetLeft" in told["InPlace"]
    assert "BudgetLeft" not in told["Restart"]


async def test_an_incident_is_closed_though_the_next_begins_at_once(town: ControllerTown) -> None:
    """How an incident ended is written when there is time; the next one may begin before."""
    await town.train()
    for number, rank in enumerate((5, 6), 1):
        death = death_of_rank(rank, f"exit-{number}")
        death.incarnation = town.controller.state.incarnation
        await town.report(death, step=5, hello=False)
        incarnation = town.controller.state.incarnation
        for kind in (wire.STOPPED, wire.REPLACEMENTS_READY, wire.NAMED, wire.RESUMED, wire.RESULT):
            told = wire.Milestone(kind=kind, incarnation=incarnation, step=6, strategy="recover")
            await town.report(milestones=[told], step=6, incarnation=incarnation, hello=False)
        assert town.controller.state.phase is JobPhase.RUNNING
    await town.controller.status.wait_until_written()
    assert [incident["outcome"] for incident in town.status()["incidents"]] == ["Recovered", "Recovered"]


async def test_a_new_operator_repeats_the_order_and_makes_no_copies(town: ControllerTown) -> None:
    await town.train()
    await town.report(wire.Fact(id="silent", kind=wire.AGENT_SILENT, node_rank=0, ranks=[0, 1], incarnation=1), step=5)
    order, pods = town.links[-1].orders[-1], {pod.uid for pod in town.pods()}
    await town.controller.stop_managing()
    town.open()
    await settle_town(town)
    await town.run_pods()
    assert town.links[-1].orders[-1] == order
    assert {pod.uid for pod in town.pods()} == pods


async def test_a_new_start_avoids_a_silent_node_without_its_pod(town: ControllerTown) -> None:
    await town.train()
    lost = next(pod for pod in town.pods() if pod.node_rank == 3)
    await town.report(wire.Fact(id="silent", kind=wire.AGENT_SILENT, node_rank=3, ranks=[6, 7], incarnation=1), step=5)
    town.controller.apply_pod(lost, deleted=True)
    await town.report(death_of_rank(2), step=5, incarnation=2)
    failed = wire.Milestone(kind=wire.RESULT, incarnation=2, result_code=499, strategy="recover")
    await town.report(milestones=[failed], step=5, incarnation=2)
    assert town.controller.state.phase == "Restarting"
    anew = [
        body for (kind, _, _), body in town.kube.objects.items() if kind == "pods" and "-0-" in body["metadata"]["name"]
    ]
    assert any(lost.node_name in str(body["spec"]["affinity"]) for body in anew)


async def test_a_pod_given_to_a_dead_node_is_made_anew_elsewhere(town: ControllerTown) -> None:
    await settle_town(town)
    stranded = next(body for (kind, _, _), body in town.kube.objects.items() if kind == "pods" and "-0-" in str(body))
    stranded["spec"]["nodeName"] = "node-0"
    town.controller.apply_pod(pod_view_of(stranded))
    town.controller.look_for_stranded("node-0")
    assert town.controller.state.restarts_infrastructure == 0
    town.nodes["node-0"] = replace(town.nodes["node-0"], ready=False)
    town.controller.look_for_stranded("node-0")
    town.controller.look_for_stranded("node-0")
    await settle_town(town)
    assert town.controller.state.phase is JobPhase.PENDING
    assert town.controller.state.restarts_infrastructure == 0
    assert stranded["metadata"]["name"] not in {pod.name for pod in town.pods()}
    assert town.events.reasons == ["PodMadeAnew"]
    assert sorted(pod.node_rank for pod in town.pods()) == [-1, 0, 1, 2, 3]


@pytest.mark.parametrize(
    ("comes_back", "used_again"),
    [({"boot": "second"}, True), ({"boot": "first"}, False), ({"boot": "second", "unschedulable": True}, False)],
)
async def test_a_node_that_has_booted_anew_is_used_again(
    town: ControllerTown, comes_back: dict[str, Any], used_again: bool
) -> None:
    town.nodes = {name: replace(node, boot="first") for name, node in town.nodes.items()}
    await town.train()
    lost = next(pod for pod in town.pods() if pod.node_rank == 3)
    node = town.nodes[lost.node_name]
    town.nodes[lost.node_name] = replace(node, ready=False)
    await town.report(wire.Fact(id="silent", kind=wire.AGENT_SILENT, node_rank=3, ranks=[6, 7], incarnation=1), step=5)
    town.controller.apply_pod(lost, deleted=True)
    await settle_town(town)
    waiting = next(pod for pod in town.pods() if pod.node_rank == 3)
    assert lost.node_name in waiting.excluded
    town.controller.apply_pod(replace(waiting, unschedulable="0/6 nodes are available"))
    await settle_town(town)
    town.nodes[lost.node_name] = replace(node, **comes_back)
    town.controller.look_for_capacity()
    await town.clock.advance(1.0)
    gone = waiting.name not in {pod.name for pod in town.pods() if not pod.deleting}
    assert gone is used_again
    if used_again:
        town.controller.apply_pod(waiting, deleted=True)
        await town.clock.advance(1.0)
        anew = next(pod for pod in town.pods() if pod.node_rank == 3 and not pod.deleting)
        assert lost.node_name not in anew.excluded
        assert town.controller.state.phase is JobPhase.GATHERING
        assert town.controller.state.incident is not None
        assert town.controller.state.incident.action == "Replace"


async def test_silence_that_is_told_again_is_not_of_the_replacement(town: ControllerTown) -> None:
    """As to a new leader, where the one before has written the decision and was killed before it acknowledged."""
    await town.train()
    silent = wire.Fact(id="silent", kind=wire.AGENT_SILENT, node_rank=3, ranks=[6, 7], incarnation=1)
    await town.report(silent, step=5)
    await town.run_pods()
    new = next(pod for pod in town.pods() if pod.node_rank == 3 and pod.incarnation == 2)
    await town.report(silent, step=5)
    assert new.uid not in town.controller.snapshots.pods.silent
    assert new.node_name not in town.avoided_nodes.avoided_names(town.clock.monotonic())


async def test_a_job_applied_anew_avoids_the_formerly_silent_node() -> None:
    town = ControllerTown()
    town.avoided_nodes.avoid_node("node-3", town.clock.monotonic())  # learnt from another job
    await settle_town(town)
    made = [body for (kind, _, _), body in town.kube.objects.items() if kind == "pods"]
    assert made
    assert all("node-3" in str(body["spec"]["affinity"]) for body in made if pod_view_of(body).role == names.ROLE_RANK)
    await town.controller.stop_managing()


async def test_avoided_nodes_are_better_than_too_few() -> None:
    """Four are needed: nodes that were silent a moment ago may be booted again, and the place of a pod is fixed."""
    town = ControllerTown()
    for number in range(3):
        town.avoided_nodes.avoid_node(f"node-{number}", town.clock.monotonic())
    town.nodes["node-5"] = replace(town.nodes["node-5"], ready=False)
    await settle_town(town)
    made = [body for (kind, _, _), body in town.kube.objects.items() if kind == "pods"]
    ranks = [str(body["spec"]["affinity"]) for body in made if pod_view_of(body).role == names.ROLE_RANK]
    assert len(ranks) == 4
    assert all("node-5" in affinity and "node-0" not in affinity for affinity in ranks)
    await town.controller.stop_managing()


async def test_a_node_whose_port_is_taken_is_avoided_by_the_next_start(town: ControllerTown) -> None:
    await settle_town(town)
    await town.run_pods()
    home = next(pod.node_name for pod in town.pods() if pod.node_rank == 1)
    taken = wire.Fact(id="port", kind=wire.PORT_TAKEN, node_rank=1, ranks=[2, 3], incarnation=1, message="8000")
    await town.report(taken)
    await town.end_deleted_pods()
    made = [body for (kind, _, _), body in town.kube.objects.items() if kind == "pods"]
    ranks = [body for body in made if pod_view_of(body).role == names.ROLE_RANK and not pod_view_of(body).deleting]
    assert [pod_view_of(body).node_name for body in ranks] == [""] * 4
    assert all(home in str(body["spec"]["affinity"]) for body in ranks)


async def test_a_pod_that_its_node_refuses_comes_anew_alone_elsewhere(town: ControllerTown) -> None:
    await settle_town(town)
    refused = next(pod for pod in town.pods() if pod.node_rank == 1)
    trouble = {"phase": "Failed", "trouble_code": "UnexpectedAdmissionError", "trouble": "no healthy devices"}
    town.controller.apply_pod(replace(refused, node_name="node-1", **trouble))  # type: ignore[arg-type]
    await town.clock.advance(1.0)
    assert (town.controller.state.phase, town.controller.state.restarts_infrastructure) == (JobPhase.PENDING, 0)
    anew = [pod for pod in town.pods() if pod.node_rank == 1 and pod.name != refused.name]
    assert ["node-1" in pod.excluded for pod in anew] == [True]
    assert len({pod.name for pod in town.pods() if pod.is_rank_pod} - {refused.name}) == 4


def test_a_pod_without_a_node_makes_no_node_avoided() -> None:
    nodes = AvoidedNodes()
    nodes.avoid_node("", 1.0)
    nodes.avoid_node("node-1", 1.0)
    assert nodes.avoided_names(2.0) == ["node-1"]
    assert nodes.avoided_names(62.0) == []


async def test_a_report_is_acknowledged_after_its_effects_are_written(town: ControllerTown) -> None:
    await town.train()
    await town.report(death_of_rank(5), step=5)
    assert town.links[0].acknowledged == town.sequence
    assert town.status()["incidents"][0]["action"] == "InPlace"


async def test_a_report_is_acknowledged_only_to_who_sent_it(town: ControllerTown) -> None:
    """While its effects wait for the API server another process answers, and counts its own reports from one."""
    await town.train()
    town.kube.fail(*[unreachable()] * 3)
    await town.report(death_of_rank(3), step=6)
    town.controller.coordinator.note_connection_change(False, "it hung up")
    town.controller.coordinator.note_connection_change(True, "")
    town.links[0].acknowledged = 0
    await town.clock.advance(30)
    assert town.status()["incidents"]
    assert town.links[0].acknowledged == 0
    town.sequence = 0
    await town.report(step=7)
    await town.clock.advance(30)
    assert town.links[0].acknowledged == 1


async def test_a_report_without_news_goes_no_further(town: ControllerTown, monkeypatch: pytest.MonkeyPatch) -> None:
    await town.train()
    await town.clock.advance(10.0)
    monkeypatch.setattr(observe, "cluster_view", lambda _: pytest.fail("it looked at the cluster"))
    published: list[bool] = []
    monkeypatch.setattr(town.controller.status, "publish_status", lambda *, lazy: published.append(lazy))
    await town.report(step=5, hello=False)
    assert published == []
    await town.report(step=6, hello=False)
    assert published == [True]
    monkeypatch.undo()
    await town.clock.advance(RARELY_SECONDS)
    town.controller.status.publish_status()
    await settle_town(town)
    account = read_journal(town.status()["journal"]).journal.account
    assert account is not None
    assert account.furthest_step == 6


async def test_a_recovery_is_told_with_phases_that_add_up(town: ControllerTown) -> None:
    await town.train()
    await town.report(death_of_rank(5), step=5)
    for kind in (wire.STOPPED, wire.REPLACEMENTS_READY, wire.NAMED, wire.RESUMED):
        strategies = ["exit", "dump", "recover"] if kind == wire.NAMED else []
        milestone = wire.Milestone(kind=kind, incarnation=2, step=6, strategies=strategies)
        await town.report(milestones=[milestone], step=6, order_revision=1, incarnation=2)
    result = wire.Milestone(kind=wire.RESULT, incarnation=2, strategy="recover")
    await town.report(milestones=[result], step=7, incarnation=2)
    assert town.controller.state.phase == "Running"
    assert town.events.reasons[-2:] == ["Recovering", "Recovered"]


async def test_a_lost_coordinator_shows_in_its_condition(town: ControllerTown) -> None:
    await town.train()
    town.controller.coordinator.note_connection_change(False, "it hung up")
    await settle_town(town)
    ready = next(each for each in town.status()["conditions"] if each["type"] == "CoordinatorReady")
    assert (ready["status"], ready["reason"]) == ("False", "Unreachable")


async def test_why_a_coordinator_cannot_serve_is_told(town: ControllerTown) -> None:
    """A port of its node is taken, say: the kubelet starts the container again and again."""
    await settle_town(town)
    (pod,) = (pod for pod in town.pods() if pod.role == names.ROLE_COORDINATOR)
    trouble = "container coordinator: Error: hajob coordinator: cannot serve on 10.0.0.1:7070"
    town.controller.apply_pod(replace(pod, phase="Running", node_name="node-1", trouble=trouble))
    await town.clock.advance(3.1)  # so that it is written
    ready = next(each for each in town.status()["conditions"] if each["type"] == "CoordinatorReady")
    assert (ready["reason"], trouble in ready["message"]) == ("Unreachable", True)


async def test_a_wait_for_a_coordinator_survives_the_operator(town: ControllerTown) -> None:
    await town.train()
    town.controller.coordinator.note_connection_change(False, "it hung up")
    await town.clock.advance(3.1)  # so that it is written
    assert "Unreachable" in town.controller.state.deadlines
    await town.controller.stop_managing()
    town.open()
    await settle_town(town)
    assert "Unreachable" in town.controller.state.deadlines


async def test_a_wait_for_a_node_survives_the_operator(town: ControllerTown) -> None:
    await settle_town(town)
    bodies = [body for (kind, _, _), body in town.kube.objects.items() if kind == "pods"]
    (body,) = (body for body in bodies if pod_view_of(body).role == names.ROLE_COORDINATOR)
    full = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/6 nodes"}
    body["status"] = {"phase": "Pending", "conditions": [full]}
    town.controller.apply_pod(pod_view_of(body))
    await town.clock.advance(6.0)
    await town.controller.stop_managing()
    town.open()
    await town.clock.advance(11.0)  # less would do, were it known that no other clock reads the journal
    assert town.events.reasons[-1] == "CoordinatorSharesNode"
    (coordinator,) = (pod for pod in town.pods() if pod.role == names.ROLE_COORDINATOR)
    assert coordinator.name != pod_view_of(body).name


async def test_a_coordinator_dead_before_the_leader_came_is_missed(town: ControllerTown) -> None:
    await town.train()
    await town.controller.stop_managing()
    town.open()
    await settle_town(town)
    assert "Unreachable" in town.controller.state.deadlines
    await town.clock.advance(16.0)
    assert town.events.reasons[-1] == "CoordinatorUnreachable"
    await town.clock.advance(61.0)
    assert town.controller.state.phase is JobPhase.UNPROTECTED


async def test_suspended_while_no_operator_looked(town: ControllerTown) -> None:
    await town.train()
    await town.controller.stop_managing()
    town.stored()["spec"]["suspend"] = True
    town.stored()["metadata"]["generation"] = 2
    town.open()
    await settle_town(town)
    assert town.controller.state.phase == "Running", "the coordinator, which would save, is still being dialled"
    await town.report(step=5, conversation="Serving")
    assert town.controller.state.phase == "Saving"


async def test_a_fault_before_a_coordinator_has_looked_around(town: ControllerTown) -> None:
    """Its channel is up again; that it takes over it says when agents have told it of their ranks."""
    await town.train()
    town.controller.coordinator.note_connection_change(False, "it hung up")
    await settle_town(town)
    await town.report(controller_ready=False, conversation="Offline")
    lost = next(pod for pod in town.pods() if pod.is_rank_pod and pod.node_rank == 1)
    town.controller.apply_pod(lost, deleted=True)
    await settle_town(town)
    assert town.controller.state.phase == "Held"
    await town.report(controller_ready=False, taking_over=True, conversation="Offline")
    await town.report(step=5, conversation="Serving")
    assert town.controller.state.phase == "Gathering"
    assert town.controller.state.restarts_infrastructure == 0


async def test_an_end_without_a_coordinator_completes_the_job(town: ControllerTown) -> None:
    await town.train()
    await end_pods(town, names.ROLE_COORDINATOR, 137)
    assert town.controller.state.phase == "Unprotected"
    await end_pods(town, names.ROLE_RANK)
    assert town.controller.state.phase == "Complete"
    assert town.status()["summary"]["state"] == "Complete"


async def test_an_end_that_nobody_saw_is_complete(town: ControllerTown) -> None:
    await town.train()
    await town.controller.stop_managing()
    await end_pods(town, names.ROLE_COORDINATOR, 137)
    await end_pods(town, names.ROLE_RANK)
    town.open()
    await settle_town(town)
    assert town.status()["summary"]["state"] == "Complete"
    assert town.status()["incidents"] == []


async def test_a_finished_pod_that_is_drained_is_not_made_again(town: ControllerTown) -> None:
    """By the next leader, which did not see it go: it would hold chips for a job that is complete."""
    await town.train()
    await end_pods(town, names.ROLE_COORDINATOR, 137)
    await end_pods(town, names.ROLE_RANK)
    await town.controller.stop_managing()
    drained = next(pod for pod in town.pods() if pod.role == names.ROLE_RANK)
    del town.kube.objects["pods", NAMESPACE, drained.name]
    left = {pod.name for pod in town.pods() if pod.role == names.ROLE_RANK}
    town.open()
    await settle_town(town)
    await town.clock.advance(60.0)
    assert town.status()["summary"]["state"] == "Complete"
    assert {pod.name for pod in town.pods() if pod.role == names.ROLE_RANK} == left


async def test_the_silence_of_a_finished_pods_agent_is_no_fault(town: ControllerTown) -> None:
    await town.train()
    first = next(body for (kind, _, _), body in sorted(town.kube.objects.items()) if kind == "pods")
    first["status"]["containerStatuses"] = [{"name": "trainer", "state": {"terminated": {"exitCode": 0}}}]
    pod = pod_view_of(first)
    assert pod.role == names.ROLE_RANK
    town.controller.apply_pod(pod)
    silent = wire.Fact(id="silent", kind=wire.AGENT_SILENT, node_rank=pod.node_rank, ranks=[0, 1], incarnation=1)
    await town.report(silent, step=5)
    assert town.controller.state.phase == "Ending"
    assert town.controller.state.incident is None


async def test_a_shrunk_job_hears_of_nodes_that_come_and_go(town: ControllerTown) -> None:
    await town.train()
    await town.controller.stop_managing()
    journal = read_journal(town.status()["journal"]).journal
    gone = Shrunk(dropped=(0,), ranks=(0, 1), nodes=(0,), lost_nodes=(0,))
    shrunk = replace(journal, state=replace(journal.state, phase=JobPhase.SHRUNK, shrunk=gone))
    town.status()["journal"] = shrunk.to_text(0)
    controller = town.open()
    await settle_town(town)
    waits, spare = {}, [name for name in town.nodes if name not in {pod.node_name for pod in town.pods()}]
    for name, nodes in (("none", {}), ("one", {spare[0]: town.nodes[spare[0]]}), ("none again", {})):
        town.nodes = nodes
        controller.look_for_capacity()
        assert controller.state.shrunk is not None
        waits[name] = bool(controller.state.shrunk.capacity_ms)
    assert waits == {"none": False, "one": True, "none again": False}


@pytest.mark.parametrize("code", ["ImageUnusable", "MindIOTLSMismatch"])
async def test_what_no_restart_changes_fails_the_job_at_once(town: ControllerTown, code: str) -> None:
    await settle_town(town)
    await town.run_pods()
    await town.report(controller_ready=False, problems=[wire.Problem(code=code, message="in words")])
    assert condition_of(town, "Failed") == ("True", code, "in words")
    assert all(pod.deleting for pod in town.pods())


async def test_a_trainer_silent_about_copies_is_called_unrecoverable(town: ControllerTown) -> None:
    await town.train()
    secret = wire.Problem(code="CopiesNotRegistered", message="rank 0 trains and has not told")
    await town.report(step=6, problems=[secret])
    town.controller.status.publish_status()
    await settle_town(town)
    assert town.controller.state.phase == "Running"
    assert condition_of(town, "Recoverable") == ("False", "CopiesNotRegistered", secret.message)


async def test_a_start_that_goes_on_is_not_given_up(town: ControllerTown) -> None:
    await settle_town(town)
    await town.run_pods()
    for _ in range(4):
        await town.clock.advance(1000.0)
        await town.report(attempt=1, controller_ready=True, sign_age_nanoseconds=5 * 10**9)
    assert condition_of(town, "Failed")[0] == "False"
    await town.clock.advance(1900.0)
    assert condition_of(town, "Failed")[:2] == ("True", "StartupDeadlineExceeded")


async def test_missing_handlers_are_seen_at_run_time(town: ControllerTown) -> None:
    await town.train()
    await town.report(step=6, problems=[wire.Problem(code="CopiesNotRegistered", message="rank 0")])
    town.controller.status.publish_status()
    await settle_town(town)
    unmet = {one["action"]: [each["name"] for each in one.get("unmet", [])] for one in town.status()["recoverability"]}
    assert {action for action, names in unmet.items() if "HandlersRegistered" in names} == unmet.keys() - {"Restart"}


async def test_accepted_warns_of_what_a_launch_switches_off(town: ControllerTown) -> None:
    await settle_town(town)
    await town.run_pods()
    await town.report(launched=["pretrain_gpt.py", "--bf16", "--lora-target-modules", "q_proj", "--swap-optimizer"])
    town.controller.status.publish_status()
    await settle_town(town)
    status, reason, message = condition_of(town, "Accepted")
    assert (status, reason) == ("True", "Valid")
    assert message.startswith("actions left: ")
    assert {"NoLora", "NoSwapOptimizer"} <= set(message.replace("(", " ").replace(")", " ").replace(",", " ").split())


async def test_a_recovery_failed_in_the_trainer_is_named_at_restart(town: ControllerTown) -> None:
    await town.train()
    await town.report(death_of_rank(5), step=5)
    failed = wire.Milestone(kind=wire.RESULT, incarnation=2, result_code=499, text="clean failed", strategy="recover")
    await town.report(milestones=[failed], step=5, incarnation=2)
    assert town.controller.state.phase == "Restarting"
    assert condition_of(town, "Running") == ("False", "Restarting", "recover failed: 499 clean failed")


def job_there(town: ControllerTown) -> bool:
    return (names.PLURAL, NAMESPACE, "quickstart") in town.kube.objects


async def complete_with_ttl(town: ControllerTown, seconds: int) -> None:
    """A job that ends now and is to be deleted later."""
    town.stored()["spec"]["ttlSecondsAfterFinished"] = seconds
    town.stored()["metadata"]["generation"] += 1
    town.controller.apply_job(HATrainingJob.from_object(town.stored()))
    await town.train()
    await town.clock.advance(1000.0)
    assert job_there(town)
    await town.report(milestones=[wire.Milestone(kind=wire.FINISHED_ALL, incarnation=1)], step=9)
    assert town.controller.state.phase == "Complete"


async def test_an_ended_job_is_deleted_in_its_time(town: ControllerTown) -> None:
    await complete_with_ttl(town, 600)
    await town.clock.advance(599.0)
    assert job_there(town)
    town.kube.fail(ApiError(0, "Unreachable", "no route"))
    await town.clock.advance(2.0)
    assert not job_there(town)


async def test_a_new_operator_counts_on_and_a_changed_limit_counts(town: ControllerTown) -> None:
    await complete_with_ttl(town, 600)
    await town.controller.stop_managing()
    await town.clock.advance(1000.0)
    assert job_there(town)
    town.stored()["spec"]["ttlSecondsAfterFinished"] = 2000
    town.open()
    await settle_town(town)
    await town.clock.advance(900.0)
    assert job_there(town)
    await town.clock.advance(101.0)
    assert not job_there(town)


async def away_during(town: ControllerTown, *facts: wire.Fact) -> None:
    """No operator for a minute; meanwhile the coordinator recovers rank 5 and tells all of it to the next one."""
    await town.controller.stop_managing()
    await town.clock.advance(60.0)
    town.open()
    await settle_town(town)
    await town.run_pods()
    seconds = 1_000_000_000
    milestones = [
        wire.Milestone(kind=kind, incarnation=2, step=6, age_nanoseconds=age * seconds, strategies=strategies)
        for kind, age, strategies in (
            (wire.STOPPED, 59, []),
            (wire.REPLACEMENTS_READY, 45, []),
            (wire.NAMED, 45, []),
            (wire.STRATEGIES, 45, ["exit", "dump", "recover"]),
            (wire.RESUMED, 44, []),
        )
    ]
    milestones.append(wire.Milestone(kind=wire.RESULT, incarnation=2, strategy="recover", age_nanoseconds=42 * seconds))
    for fact in facts:
        fact.age_nanoseconds = 59 * seconds
    await town.report(*facts, milestones=milestones, step=300, incarnation=2)


@pytest.mark.parametrize("decided", [True, False])
async def test_recoveries_without_an_operator_are_told_as_one(town: ControllerTown, decided: bool) -> None:
    await town.train()
    if decided:
        await town.report(death_of_rank(5), step=5)
    await away_during(town, *([] if decided else [death_of_rank(5)]))
    assert town.controller.state.phase == "Running"
    (incident,) = town.status()["incidents"]
    assert (incident["action"], incident["outcome"], incident["incarnation"]) == ("InPlace", "Recovered", 2)
    assert [order.action for order in town.links[-1].orders[-1:]] == [wire.IN_PLACE]
    assert len(town.pods()) == 5


async def test_a_pod_on_a_node_excluded_while_running_moves(town: ControllerTown) -> None:
    await town.train()
    home = next(pod.node_name for pod in town.pods() if pod.node_rank == 1)
    town.stored()["spec"]["scheduling"] = {"excludedNodeNames": [home]}
    town.stored()["metadata"]["generation"] += 1
    town.controller.apply_job(HATrainingJob.from_object(town.stored()))
    await settle_town(town)
    assert str(town.controller.state.phase) == "Migrating"
    assert town.links[0].orders[-1].action == wire.MIGRATE
    assert incarnations_of_node_1(town) == [1, 2]
    await town.run_pods()
    await town.clock.advance(300.0)
    assert str(town.controller.state.phase) == "Running"
    assert incarnations_of_node_1(town) == [1]
    await town.clock.advance(300.0)
    assert town.events.reasons.count("MigrateGivenUp") == 1


async def test_a_leader_with_a_clock_behind_is_not_refused(town: ControllerTown) -> None:
    """Coordinators refuse an assignment of a smaller revision than the one they have."""
    await town.train()
    await town.clock.advance(4.0)
    newest = town.links[-1].assignments[-1].revision
    await town.controller.stop_managing()
    town.clock.step_wall(-60.0)
    town.open()
    await settle_town(town)
    await town.run_pods()
    assert len(town.links) == 2
    assert town.links[-1].assignments[-1].revision >= newest
