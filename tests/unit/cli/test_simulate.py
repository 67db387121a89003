"""kubectl hajob simulate: the JSON, the text, bad input, and that the live machine decides the same."""

from __future__ import annotations

import copy
import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from hajob.cli.main import main
from hajob.domain.actions import Action
from hajob.domain.errors import HajobInputError
from hajob.domain.facts import FactKind
from hajob.job.status.journal import Journal, read_journal
from hajob.plan.placements import placements
from hajob.plan.policy import layout_from_spec, policy_from_spec
from hajob.plan.simulate import SimulationRequest, simulate_loss
from hajob.plan.view import ClusterView
from tests.rigs.example_jobs import EXAMPLE_MANIFEST
from tests.rigs.plan_rig import Rig


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(EXAMPLE_MANIFEST), encoding="utf-8")
    return path


def ask(capsys: pytest.CaptureFixture[str], manifest: Path, *arguments: str) -> dict[str, Any]:
    assert main(["simulate", "-f", str(manifest), *arguments, "-o", "json"]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def test_exactly_the_promised_keys(capsys: pytest.CaptureFixture[str], manifest: Path) -> None:
    answer = ask(capsys, manifest, "--lose", "rank=5")
    keys = "action faultRanks isolatedRanks leavingNodes dataParallel microBatches copies refused writes"
    assert list(answer) == keys.split()
    assert list(answer["dataParallel"]) == ["desired", "current", "dropped"]


def test_what_the_script_switches_off_is_noted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    job = copy.deepcopy(EXAMPLE_MANIFEST)
    job["spec"]["template"]["spec"]["containers"][0]["args"].append("--swap-optimizer")
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(job), encoding="utf-8")
    assert main(["simulate", "-f", str(path), "--lose", "rank=5"]) == 0
    noted = capsys.readouterr().err
    assert noted.startswith("note: actions left: ")
    assert "NoSwapOptimizer" in noted


@pytest.mark.parametrize(("node", "spare"), [(1, {"1": "spare 0"}), (3, None)])
def test_blocks_are_replaced_in_their_super_pod(
    node: int, spare: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """One spare stands in the super pod of one block, and is of no use to the other."""
    job = copy.deepcopy(EXAMPLE_MANIFEST)
    nodes, chips = job["spec"]["numNodes"], job["spec"]["accelerator"]["chipsPerNode"]
    job["spec"]["accelerator"] |= {"product": "A3", "superPodChips": nodes // 2 * chips}
    job["spec"]["scheduling"] = {**job["spec"].get("scheduling", {}), "numSpareNodes": 1}
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(job), encoding="utf-8")
    answer = ask(capsys, path, "--lose", f"node={node}")
    assert answer.get("spares") == spare
    free = ask(capsys, path, "--lose", f"node={node}", "--free-nodes", "1")
    assert (free["action"], free["blocks"]) == ("Replace", {str(node): node * 2 // nodes})
    assert main(["simulate", "-f", str(path), "--lose", f"node={node}", "--free-nodes", "1"]) == 0
    assert f"node rank {node}: that of block {node * 2 // nodes}" in capsys.readouterr().out


def test_every_copy_pair_is_named(capsys: pytest.CaptureFixture[str], manifest: Path) -> None:
    answer = ask(capsys, manifest, "--lose", "rank=5")
    assert answer["copies"] == [{"kind": "Dense", "ranks": [n, n + 4]} for n in (0, 2, 1, 3)]


def test_experts_have_copies_of_their_own(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    job = copy.deepcopy(EXAMPLE_MANIFEST)
    job["spec"]["parallelism"] = {"tensor": 2, "expert": 2, "expertTensor": 1}
    path = tmp_path / "experts.yaml"
    path.write_text(yaml.safe_dump(job), encoding="utf-8")
    rows = ask(capsys, path, "--lose", "rank=5")["copies"]
    assert [row["ranks"] for row in rows if row["kind"] == "Expert"] == [[0, 4], [2, 6], [1, 5], [3, 7]]


def test_a_process(capsys: pytest.CaptureFixture[str], manifest: Path) -> None:
    answer = ask(capsys, manifest, "--lose", "rank=5")
    assert answer["action"] == "InPlace"
    assert answer["faultRanks"] == [5]
    assert (answer["isolatedRanks"], answer["leavingNodes"]) == ([4, 5], [2])
    assert answer["dataParallel"] == {"desired": 4, "current": 4, "dropped": [2]}
    assert answer["microBatches"] == [16, 16, 16, 16]
    assert answer["refused"] == {"Retry": ["ProcessAlive"], "Replace": ["FreeNode"]}
    assert [write["resource"] for write in answer["writes"]] == [
        "hatrainingjobs/status",
        "events",
        "hatrainingjobs/status",
        "events",
        "hatrainingjobs/status",
    ]
    assert [write["reason"] for write in answer["writes"] if "reason" in write] == ["Recovering", "Recovered"]


def test_a_job_that_is_not_started_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    job = copy.deepcopy(EXAMPLE_MANIFEST)
    job["spec"]["checkpoint"]["savedLimit"] = 3
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(job), encoding="utf-8")
    assert main(["simulate", "-f", str(path), "--lose", "rank=5"]) == 0
    assert "checkpoint.savedLimit" in capsys.readouterr().err


def test_a_node_without_and_with_a_free_one(capsys: pytest.CaptureFixture[str], manifest: Path) -> None:
    answer = ask(capsys, manifest, "--lose", "node=2")
    assert answer["action"] == "Shrink"
    assert answer["faultRanks"] == [4, 5]
    assert answer["dataParallel"] == {"desired": 4, "current": 3, "dropped": [2]}
    assert answer["microBatches"] == [22, 21, 21]
    assert answer["refused"] == {"Retry": ["PodAlive"], "InPlace": ["PodAlive"], "Replace": ["FreeNode"]}
    answer = ask(capsys, manifest, "--lose", "node=2", "--free-nodes", "1")
    assert answer["action"] == "Replace"
    assert answer["dataParallel"]["current"] == 4
    pods = [(write["verb"], write["nodeRank"]) for write in answer["writes"] if write["resource"] == "pods"]
    assert pods == [("delete", 2), ("create", 2)]


def test_pods_that_leave_with_a_shrink_are_not_kept() -> None:
    spec = {**EXAMPLE_MANIFEST["spec"], "parallelism": {"tensor": 2, "pipeline": 2}}
    answer = simulate_loss(spec, SimulationRequest(nodes=(1,)))
    assert (answer.action, answer.isolation.nodes, answer.kept_nodes) == ("Shrink", (1, 3), (0, 2))


def test_the_node_of_rank_0(capsys: pytest.CaptureFixture[str], manifest: Path) -> None:
    assert ask(capsys, manifest, "--lose", "node=0", "--free-nodes", "1")["action"] == "Replace"
    answer = ask(capsys, manifest, "--lose", "node=0")
    assert answer["action"] == "Checkpoint"
    assert answer["refused"]["Shrink"] == ["RankZeroInSet"]
    assert {"verb": "create", "resource": "pods", "role": "coordinator"} in answer["writes"]


def test_both_holders_of_a_shard(capsys: pytest.CaptureFixture[str], manifest: Path) -> None:
    answer = ask(capsys, manifest, "--lose", "node=1", "--lose", "node=3")
    assert answer["action"] == "Restart"
    assert answer["refused"]["Checkpoint"] == ["CompleteCopy"]
    assert ask(capsys, manifest, "--lose", "node=1", "--lose", "node=3", "--free-nodes", "2")["action"] == "Replace"
    assert ask(capsys, manifest, "--lose", "node=1", "--lose", "node=3", "--free-nodes", "1")["action"] == "Restart"


def test_a_rank_and_its_node_are_one_loss(capsys: pytest.CaptureFixture[str], manifest: Path) -> None:
    answer = ask(capsys, manifest, "--lose", "rank=5", "--lose", "node=2", "--free-nodes", "1")
    assert (answer["action"], answer["faultRanks"]) == ("Replace", [4, 5])
    answer = ask(capsys, manifest, "--lose", "rank=1", "--lose", "rank=6")
    assert (answer["action"], answer["faultRanks"]) == ("InPlace", [1, 6])


@pytest.mark.parametrize(
    ("during", "action"),
    [
        ("Retry", "InPlace"),
        ("InPlace", "InPlace"),
        ("Replace", "Replace"),
        ("Shrink", "Checkpoint"),
        ("Checkpoint", "Checkpoint"),
        ("Restart", "Restart"),
        ("Expand", "Checkpoint"),
        ("Migrate", "InPlace"),
    ],
)
def test_during(capsys: pytest.CaptureFixture[str], manifest: Path, during: str, action: str) -> None:
    assert ask(capsys, manifest, "--lose", "rank=5", "--during", during)["action"] == action


def test_the_text_says_it_in_words(capsys: pytest.CaptureFixture[str], manifest: Path) -> None:
    assert main(["simulate", "-f", str(manifest), "--lose", "node=2"]) == 0
    text = capsys.readouterr().out
    for words in (
        "action                    Shrink",
        "fault ranks               4-5",
        "data-parallel ranks       3 of 4 train on",
        "  pods that leave         2",
        "pods kept                 0-1, 3",
        "micro batches             22, 21, 21",
        "expected step time        1.38 times that of the full size",
        "  Replace     refused  1 more node is needed; none became free within 270 s",
        "  Shrink      taken    taken: the smallest action that works",
        "  rank 4 (dense): rank 0",
        "  delete pods (node rank 2, incarnation 1)",
        "  patch hatrainingjobs/status",
    ):
        assert words in text, words


def test_the_memory_of_the_copies_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    job = copy.deepcopy(EXAMPLE_MANIFEST)
    job["spec"]["model"] = {"parameters": 2_000_000_000}
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(job), encoding="utf-8")
    assert main(["simulate", "-f", str(path), "--lose", "rank=5"]) == 0
    text = capsys.readouterr().out
    assert "memory of the copies      4.00 GB on each chip, 32.0 GB in all" in text
    assert "memory of a shrink        up to 3.6 GB more on each chip" in text
    assert "expected step time        1.00 times" in text


def test_the_job_fails_when_nothing_is_left(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    job = copy.deepcopy(EXAMPLE_MANIFEST)
    names = ("Retry", "InPlace", "Replace", "Shrink", "Checkpoint", "Restart")
    job["spec"]["recovery"] = {"actions": [{"name": name, "maxCount": 0} for name in names]}
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(job), encoding="utf-8")
    answer = ask(capsys, path, "--lose", "rank=5")
    assert answer["action"] is None
    assert answer["refused"]["Restart"] == ["ActionAllowed"]
    assert main(["simulate", "-f", str(path), "--lose", "rank=5"]) == 0
    assert "none, the job fails: RestartNotAllowed" in capsys.readouterr().out


def test_a_manifest_on_standard_input(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("kind: Namespace\n---\n" + yaml.safe_dump(EXAMPLE_MANIFEST)))
    assert main(["simulate", "-f", "-", "--lose", "rank=0", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["action"] == "InPlace"


@pytest.mark.parametrize("mode", ["Hold", "Observe"])
def test_it_is_told_what_an_enforced_recovery_would_do(mode: str) -> None:
    question = SimulationRequest(nodes=(2,))
    held = simulate_loss({**EXAMPLE_MANIFEST["spec"], "recovery": {"mode": mode}}, question)
    enforced = simulate_loss(EXAMPLE_MANIFEST["spec"], question)
    assert (held.action, held.considered) == (enforced.action, enforced.considered)


def test_every_action_up_to_the_taken_one_is_evaluated() -> None:
    answer = simulate_loss(EXAMPLE_MANIFEST["spec"], SimulationRequest(nodes=(2,)))
    evaluated = [(verdict.action, verdict.taken) for verdict in answer.considered]
    assert evaluated == [("Retry", False), ("InPlace", False), ("Replace", False), ("Shrink", True)]


def test_larger_actions_that_would_not_work_are_refused_too() -> None:
    considered = simulate_loss(EXAMPLE_MANIFEST["spec"], SimulationRequest(ranks=(5,))).considered
    assert [(one.action, one.taken) for one in considered] == [("Retry", False), ("InPlace", True), ("Replace", False)]


@pytest.mark.parametrize(
    ("question", "action", "phase", "attempt"),
    [
        (SimulationRequest(ranks=(5,)), "InPlace", "Running", 1),
        (SimulationRequest(nodes=(2,), free_nodes=1), "Replace", "Running", 1),
        (SimulationRequest(nodes=(2,)), "Shrink", "Shrunk", 1),
        (SimulationRequest(nodes=(0,)), "Checkpoint", "Running", 2),
        (SimulationRequest(nodes=(1, 3)), "Restart", "Running", 2),
        (SimulationRequest(ranks=(5,), during=Action.CHECKPOINT), "Checkpoint", "Running", 2),
        (SimulationRequest(ranks=(5,), during=Action.RESTART), "Restart", "Running", 2),
    ],
)
def test_the_imagined_job_trains_again_in_the_end(
    question: SimulationRequest, action: str, phase: str, attempt: int
) -> None:
    answer = simulate_loss(EXAMPLE_MANIFEST["spec"], question)
    end = answer.turns[-1].transition.state
    assert (answer.action, end.phase, end.incident, end.attempt) == (action, phase, None, attempt)


@pytest.mark.parametrize("during", ["Shrink", "Checkpoint", "Restart", "Expand"])
def test_where_nothing_can_be_replaced_nothing_is_awaited(
    capsys: pytest.CaptureFixture[str], manifest: Path, during: str
) -> None:
    answer = ask(capsys, manifest, "--lose", "node=2", "--during", during)
    assert answer["refused"].get("Replace") in (None, ["StillPossible"])
    assert not any(
        turn.waited
        for turn in simulate_loss(EXAMPLE_MANIFEST["spec"], SimulationRequest(nodes=(2,), during=Action(during))).turns
    )


def test_a_restart_after_a_further_loss_is_not_awaited() -> None:
    """MindSpore cannot go on without a complete copy: the second node turns the replacement into a restart."""
    answer = simulate_loss({**EXAMPLE_MANIFEST["spec"], "framework": "MindSpore"}, SimulationRequest(nodes=(1, 3)))
    assert answer.action == "Restart"
    assert not any(turn.waited for turn in answer.turns)


@pytest.mark.parametrize("during", Action)
def test_the_simulated_job_survives_its_journal(during: Action) -> None:
    begin = simulate_loss(EXAMPLE_MANIFEST["spec"], SimulationRequest(ranks=(5,), during=during)).turns[0].before
    assert read_journal(Journal(begin).to_text(0)).journal.state == begin
    assert begin.incident is not None
    assert begin.incident.action is during


def test_a_question_without_a_loss_is_refused() -> None:
    with pytest.raises(HajobInputError, match=r"^no loss is given: name at least one rank or node$"):
        simulate_loss(EXAMPLE_MANIFEST["spec"], SimulationRequest())


@pytest.mark.parametrize("sizes", [["--global-batch-size", "64"], ["--micro-batch-size", "1"]])
def test_half_of_the_batch_sizes_tell_nothing(sizes: list[str]) -> None:
    job = copy.deepcopy(EXAMPLE_MANIFEST)
    job["spec"]["template"]["spec"]["containers"][0]["args"] = sizes
    answer = simulate_loss(job["spec"], SimulationRequest(ranks=(5,)))
    assert (answer.micro_batches, answer.step_time) == ((), None)


def test_a_script_hides_the_batch(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    job = copy.deepcopy(EXAMPLE_MANIFEST)
    job["spec"]["template"]["spec"]["containers"][0] = {"name": "trainer", "command": ["bash", "train.sh"]}
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(job), encoding="utf-8")
    assert ask(capsys, path, "--lose", "rank=5")["microBatches"] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--lose", "rank=8"], "rank 8 is outside the world of 8 ranks (0 to 7)"),
        (["--lose", "node=4"], "node rank 4 is outside the job of 4 nodes"),
        (["--lose", "rank=-1"], "--lose rank=-1: write rank=N or node=N"),
        (["--lose", "pod=1"], "--lose pod=1: write rank=N or node=N"),
        (["--lose", "5"], "--lose 5: write rank=N or node=N"),
        (["--lose", "rank=5", "--free-nodes", "-1"], "--free-nodes -1: give 0 or more"),
    ],
)
def test_questions_that_make_no_sense(
    capsys: pytest.CaptureFixture[str], manifest: Path, arguments: list[str], words: str
) -> None:
    assert main(["simulate", "-f", str(manifest), *arguments]) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.out == ""


@pytest.mark.parametrize(
    "arguments", [[], ["--lose", "rank=5", "--during", "Sleep"], ["--lose", "rank=1", "--free-nodes", "x"]]
)
def test_command_lines_that_make_no_sense(manifest: Path, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as error:
        main(["simulate", "-f", str(manifest), *arguments])
    assert error.value.code == 2


def edited(**changes: Any) -> dict[str, Any]:
    job = copy.deepcopy(EXAMPLE_MANIFEST)
    for key, value in changes.items():
        job["spec"][key] = value
    return job


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (edited(numNodes=3, parallelism={"tensor": 4}), "6 ranks (3 nodes x 2 chips): no multiple of tensor 4"),
        (edited(numNodes=0), "spec.numNodes"),
        (edited(numNodes="many"), "spec.numNodes"),
        (edited(parallelism={}), "spec.parallelism.tensor"),
        (edited(numNodez=4), "unknown fields: spec.numNodez"),
        (edited(parallelism={"tensor": 2, "tensr": 2}), "unknown fields: spec.parallelism.tensr"),
        (edited(template={"spec": {"contaners": []}}), "holds 0 containers named trainer"),
        (edited(template={"spec": {"containers": [{"name": "trainer"}, {"name": "trainer"}]}}), "holds 2 containers"),
        ({"kind": "HATrainingJob"}, "spec is missing"),
        ({"kind": "Deployment"}, "holds 0 objects of kind HATrainingJob; it must be one"),
    ],
)
def test_manifests_that_make_no_sense(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, job: dict[str, Any], words: str
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(job), encoding="utf-8")
    assert main(["simulate", "-f", str(path), "--lose", "rank=0"]) == 2
    assert words in capsys.readouterr().err


def test_files_that_cannot_be_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("a: [", encoding="utf-8")
    deep = tmp_path / "deep.yaml"
    deep.write_text("[" * 2000 + "]" * 2000, encoding="utf-8")
    for path in (tmp_path / "missing.yaml", broken, deep, tmp_path):
        assert main(["simulate", "-f", str(path), "--lose", "rank=0"]) == 2
        assert "cannot be read" in capsys.readouterr().err


def test_a_batch_that_does_not_divide_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    job = copy.deepcopy(EXAMPLE_MANIFEST)
    job["spec"]["template"]["spec"]["containers"][0]["args"] = ["--global-batch-size=63", "--micro-batch-size=1"]
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(job), encoding="utf-8")
    assert main(["simulate", "-f", str(path), "--lose", "rank=0"]) == 2
    assert "global batch 63 is not a multiple" in capsys.readouterr().err


@pytest.mark.parametrize("free", [0, 1, 2])
@pytest.mark.parametrize(
    ("ranks", "nodes"), [((5,), ()), ((), (2,)), ((), (0,)), ((1,), (3,)), ((), (1, 3)), ((3, 4), ())]
)
def test_the_live_machine_decides_the_same(ranks: tuple[int, ...], nodes: tuple[int, ...], free: int) -> None:
    """Fed like the operator, fact by fact, the machine comes to the same action and the same effects."""
    spec = EXAMPLE_MANIFEST["spec"]
    answer = simulate_loss(spec, SimulationRequest(ranks, nodes, free))
    rig = Rig.running(
        view=ClusterView(layout_from_spec(spec), step=10, free_nodes=free, checkpoint_step=10),
        policy=policy_from_spec(spec),
    )
    done = [effect for node in nodes for effect in rig.see(FactKind.NODE_NOT_READY, node=node)]
    done += [effect for rank in ranks if rank // 2 not in nodes for effect in rig.exits(rank)]
    if rig.incident.replaced_nodes and len(rig.incident.replaced_nodes) > free:
        done += rig.deadline("Recovery")
    assert rig.action is answer.action
    imagined = [effect for turn in answer.turns for effect in turn.transition.effects]
    assert [type(effect) for effect in done] == [type(effect) for effect in imagined[: len(done)]]
    pods = placements(rig.state, 4)
    assert any(placements(turn.transition.state, 4) == pods for turn in answer.turns)


def test_a_lost_node_goes_onto_a_spare_and_shrinks_nothing(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = copy.deepcopy(EXAMPLE_MANIFEST)
    job["spec"]["scheduling"] = {"numSpareNodes": 1}
    manifest.write_text(yaml.safe_dump(job), encoding="utf-8")
    assert main(["simulate", "-f", str(manifest), "--lose", "node=2", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["action"], found["spares"]) == ("Replace", {"2": "spare 0"})
    assert main(["simulate", "-f", str(manifest), "--lose", "node=2", "--lose", "node=3"]) == 0
    text = capsys.readouterr().out
    assert "onto a spare node         node rank 2: spare 0" in text
    assert "1 more node is needed" in text
