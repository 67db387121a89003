"""Jobs that cannot be served, each by one edit of the quickstart, with a part of the sentence that refuses it.

The edits are what people bring from other operators, or write by mistake. The same table is held against the server in
memory and a real one.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import yaml

from e2e.bootstrap.paths import CHECKOUT
from hajob.api.base import Json

QUICKSTART: Json = yaml.safe_load((CHECKOUT / "examples/quickstart.yaml").read_text(encoding="utf-8"))
CHIP = "huawei.com/Ascend910"
IN_BLOCKS: Json = {"product": "A3", "chipsPerNode": 2, "superPodChips": 4}
ASKED = "2026-11-22T01:00:00Z"
RAILS: Json = {"nodeName": "node-7", "chips": [0]}
Edit = Callable[[Json], object]


def pod(job: Json) -> Json:
    """Find the spec of the template."""
    found: Json = job["spec"]["template"]["spec"]
    return found


def trainer(job: Json) -> Json:
    """Find the container that trains."""
    return next(one for one in pod(job)["containers"] if one["name"] == "trainer")


def in_pod(**fields: Any) -> Edit:
    """Make an edit of the template's spec."""
    return lambda job: pod(job).update(fields)


def in_trainer(**fields: Any) -> Edit:
    """Make an edit of the trainer."""
    return lambda job: trainer(job).update(fields)


def in_spec(part: str, **fields: Any) -> Edit:
    """Make an edit of a part of the spec."""
    return lambda job: job["spec"].setdefault(part, {}).update(fields)


def beside(where: str = "containers", first: bool = False, **fields: Any) -> Edit:
    """Make an edit that puts another container beside, with these fields."""

    def edit(job: Json) -> None:
        listed = pod(job).setdefault(where, [])
        listed.insert(0 if first else len(listed), {"name": "more", "image": "i", **fields})

    return edit


def by_volcano(metadata: Json | None = None, spec: Json | None = None, **fields: Any) -> Edit:
    """Make an edit that has Volcano place the pods, and adds to the template or replaces fields of the spec."""

    def edit(job: Json) -> None:
        job["spec"].setdefault("scheduling", {})["gangPolicy"] = "Volcano"
        job["spec"]["template"].setdefault("metadata", {}).update(metadata or {})
        pod(job).update(spec or {})
        job["spec"].update(fields)

    return edit


_SHARE = "huawei.com/scheduler.softShareDev"

BY_A_RULE: dict[str, tuple[Edit, str]] = {
    "nodeName": (in_pod(nodeName="node-7"), "node-7: spec.template.spec.nodeName binds every pod to one node"),
    "schedulingGates": (in_pod(schedulingGates=[{"name": "a/b"}]), "hold the job with spec.suspend"),
    "restartPolicy": (in_pod(restartPolicy="OnFailure"), "OnFailure: spec.template.spec.restartPolicy must be Never"),
    "activeDeadlineSeconds": (in_pod(activeDeadlineSeconds=60), "limit the job with spec.activeDeadlineSeconds"),
    "a grace of a day": (in_pod(terminationGracePeriodSeconds=86400), "must be 1 to 3600"),
    "no grace": (in_pod(terminationGracePeriodSeconds=0), "must be 1 to 3600"),
    "hostname": (in_pod(hostname="one"), "would give all rank pods one name"),
    "hostnameOverride": (in_pod(hostnameOverride="one"), "would give all rank pods one name"),
    "setHostnameAsFQDN": (in_pod(setHostnameAsFQDN=True), "longer than the 64 characters"),
    "os": (in_pod(os={"name": "windows"}), "os.name must be linux"),
    "livenessProbe": (in_trainer(livenessProbe={"exec": {"command": ["true"]}}), "spec.recovery.hang finds hangs"),
    "startupProbe": (in_trainer(startupProbe={"exec": {"command": ["true"]}}), "spec.startupDeadlineSeconds"),
    "restartPolicy of trainer": (in_trainer(restartPolicy="Always"), "container trainer has restartPolicy"),
    "restartPolicyRules of trainer": (
        in_trainer(restartPolicyRules=[{"action": "Restart"}]),
        "trainer has restartPolicyR",
    ),
    "stopSignal": (in_trainer(lifecycle={"stopSignal": "SIGUSR1"}), "ends the ranks at SIGTERM"),
    "a container named agent": (beside(name="agent"), "spec.template.spec.containers has a name that Hajob's own have"),
    "a container named controller": (beside(name="controller"), "containers has a name that Hajob's own have"),
    "an init container named install": (
        beside("initContainers", name="install"),
        "initContainers has a name that Hajob's own have",
    ),
    "a volume named hajob": (
        lambda job: pod(job)["volumes"].append({"name": "hajob", "emptyDir": {}}),
        "volumes has a name that Hajob's own have (hajob, hajob-tls, hajob-mindio-tls, hajob-rank-table)",
    ),
    "another container with chips": (
        beside(first=True, resources={"limits": {CHIP: 1}}),
        "another container than trainer asks for accelerator.resourceName",
    ),
    "an init container with chips": (
        beside("initContainers", resources={"requests": {CHIP: 1}, "limits": {CHIP: 1}}),
        "an init container asks for accelerator.resourceName",
    ),
    "checkpoints on no volume": (in_trainer(volumeMounts=[]), "/ckpt: spec.checkpoint.path lies on no volume"),
    "checkpoints beside the volume": (in_spec("checkpoint", path="/other"), "/other: spec.checkpoint.path lies on no"),
    "a misspelled volumeMounts": (
        lambda job: trainer(job).update(volumeMount=trainer(job).pop("volumeMounts")),
        "spec.checkpoint.path lies on no volume",
    ),
    "a replacement timeout beyond MindIO's": (
        in_spec("recovery", replacementTimeoutSeconds=7200),
        "set recovery.replacementTimeoutSeconds to 3480 or less",
    ),
    "launcher": (
        lambda job: job["spec"].update(launcher="TaskD", framework="MindSpore"),
        "launcher: TaskD with framework: MindSpore is not supported",
    ),
    "queueName without Volcano": (
        in_spec("scheduling", queueName="q"),
        "q: spec.scheduling.queueName is a queue",
    ),
    "a label by which Volcano deletes": (
        by_volcano(metadata={"labels": {"fault-scheduling": "force"}}),
        "fault-scheduling: spec.template.metadata.labels: by it Volcano's Ascend plugin deletes",
    ),
    "an annotation that Volcano reads": (
        by_volcano(metadata={"annotations": {"sp-block": "32"}}),
        "sp-block: spec.template.metadata.annotations: Hajob writes what Volcano reads",
    ),
    "two labels by which chips are shared": (
        by_volcano(metadata={"labels": {_SHARE + ".policy": "elastic", _SHARE + ".hbmQuota": "1", "team": "a"}}),
        f"{_SHARE}.policy: spec.template.metadata.labels",
    ),
    "chips of one pod, told of all": (
        lambda job: job["spec"]["template"].update(metadata={"annotations": {"huawei.com/AscendReal": "Ascend910-0"}}),
        "huawei.com/AscendReal: spec.template.metadata.annotations: scheduler and device plugin tell by it which chips",
    ),
    "the chips that Volcano has chosen for one pod": (
        lambda job: job["spec"]["template"].update(metadata={"annotations": {CHIP: "Ascend910-0"}}),
        f"{CHIP}: spec.template.metadata.annotations: scheduler and device plugin tell by it which chips",
    ),
    "the default scheduler with Volcano": (
        by_volcano(spec={"schedulerName": "default-scheduler"}),
        "default-scheduler knows no PodGroups of Volcano",
    ),
    "an odd number of chips with Volcano": (
        by_volcano(accelerator={"product": "A3", "chipsPerNode": 7}, parallelism={"tensor": 1}),
        "spec.accelerator.chipsPerNode is odd",
    ),
    "mindIOTLSPolicy with TaskD": (
        lambda job: job["spec"].update(launcher="TaskD", network={"mindIOTLSPolicy": "Enabled"}),
        "TaskD starts MindIO's controller without TLS",
    ),
    "a stress test without TaskD": (
        in_spec("pause", requestTime=ASKED, stressTest={}),
        "spec.pause.stressTest and switchRails are TaskD's work",
    ),
    "rails without A3": (
        lambda job: job["spec"].update(launcher="TaskD", pause={"requestTime": ASKED, "switchRails": [RAILS]}),
        "spec.pause.switchRails needs rails that a chip can borrow, which only A3 has",
    ),
    "superPodChips without a gang": (
        lambda job: job["spec"].update(accelerator=IN_BLOCKS, scheduling={"gangPolicy": "None"}),
        "spec.accelerator.superPodChips needs room for whole blocks",
    ),
    "blocks that do not come out whole": (
        by_volcano(accelerator=IN_BLOCKS | {"superPodChips": 6}),
        "the chips cannot be divided into blocks",
    ),
    "blocks and any number of nodes": (
        by_volcano(accelerator=IN_BLOCKS, elastic={"restartSize": "Available"}),
        "spec.elastic.restartSize: Available starts with any number of nodes",
    ),
    "blocks and warm spares": (
        by_volcano(accelerator=IN_BLOCKS, scheduling={"gangPolicy": "Volcano", "spareMode": "Warm"}),
        "spec.scheduling.spareMode: Warm starts a pod before it is known",
    ),
    "savedLimit": (in_spec("checkpoint", savedLimit=3), "spec.checkpoint.savedLimit is not supported"),
    "restartSize of MindSpore": (
        lambda job: job["spec"].update(framework="MindSpore", elastic={"restartSize": "Available"}),
        "restartSize: Available with framework: MindSpore is not supported",
    ),
    "an interface with blanks": (
        in_spec("network", interface="eth0 ; rm -rf"),
        "eth0 ; rm -rf: spec.network.interface must be the name of a network interface",
    ),
    "a relative output path": (in_spec("output", path="out"), "out: spec.output.path must be absolute"),
    "a log rule that is no pattern": (
        in_spec("recovery", logRules=[{"name": "nan", "pattern": "loss: (nan"}]),
        "a log rule needs a regular expression of RE2",
    ),
}
"""Refused when they are applied."""

MUTABLE = (
    *("nodeName", "a replacement timeout beyond MindIO's"),
    *("queueName without Volcano", "a label by which Volcano deletes", "an annotation that Volcano reads"),
    "chips of one pod, told of all",
    *("an interface with blanks", "a relative output path", "a log rule that is no pattern"),
)
"""Those that an edit of a stored job, if it is suspended, could bring in."""


def _volume(**source: Any) -> Edit:
    return lambda job: pod(job).update(volumes=[{"name": "checkpoints", **source}])


def _mount(**fields: Any) -> Edit:
    return lambda job: trainer(job)["volumeMounts"][0].update(fields)


def _inner_mount(job: Json) -> None:
    trainer(job)["volumeMounts"].insert(0, {"name": "scratch", "mountPath": "/ckpt/run"})
    pod(job)["volumes"].append({"name": "scratch", "emptyDir": {}})
    job["spec"]["checkpoint"] = {"path": "/ckpt/run/1"}


TABLE_MOUNT: Json = {"name": "table", "mountPath": "/user/serverid/devindex/config/"}


def _reads_table(job: Json, *, policy: str = "Enabled") -> None:
    """Mount a volume of the user's where the rank table comes."""
    job["spec"]["network"] = {"rankTablePolicy": policy}
    pod(job)["volumes"].append({"name": "table", "emptyDir": {}})
    trainer(job)["volumeMounts"].append(TABLE_MOUNT)


def without_table(job: Json) -> None:
    """Mount a rank table that nobody writes."""
    _reads_table(job, policy="Disabled")


BY_THE_OPERATOR: dict[str, tuple[Edit, str]] = {
    "a mount whose name begins alike": (_mount(mountPath="/ck"), "(mounted are: /ck)"),
    "emptyDir": (_volume(emptyDir={}), "of kind emptyDir, which is empty in each new pod"),
    "a volume for each pod": (
        _volume(ephemeral={"volumeClaimTemplate": {"spec": {}}}),
        "of kind ephemeral, which is made for each pod",
    ),
    "a ConfigMap": (_volume(configMap={"name": "c"}), "of kind configMap, which cannot be written to"),
    "an emptyDir within the volume": (_inner_mount, "scratch holds spec.checkpoint.path: /ckpt/run/1"),
    "a mount that cannot be written": (_mount(readOnly=True), "is readOnly: no checkpoint could be saved"),
    "a directory for each pod": (_mount(subPathExpr="$(POD_NAME)"), "has subPathExpr: $(POD_NAME)"),
    "a path that goes up": (in_spec("checkpoint", path="/ckpt/../tmp"), "spec.checkpoint.path: /ckpt/../tmp: has `..`"),
    "a mount where the rank table comes": (
        _reads_table,
        "volumeMount table at /user/serverid/devindex/config/ is where",
    ),
    "another number of chips": (
        in_trainer(resources={"limits": {CHIP: 8}}),
        f"container trainer has {CHIP}: 8 in its resources: leave it out; Hajob gives all 2 {CHIP}",
    ),
    "another chip of the same vendor": (
        in_trainer(resources={"limits": {"huawei.com/Ascend910B": 2}}),
        "container trainer has huawei.com/Ascend910B: 2 in its resources",
    ),
    "another chip beside": (
        beside(resources={"limits": {"huawei.com/Ascend310P": 1}}),
        "container more has huawei.com/Ascend310P: 1 in its resources",
    ),
    "an amount with words": (
        in_trainer(resources={"requests": {"cpu": "96 cores"}}),
        "container trainer has cpu: 96 cores in its resources.requests, which is no quantity",
    ),
    "a container that restarts all": (
        beside(restartPolicy="Never", restartPolicyRules=[{"action": "RestartAllContainers"}]),
        "container more has a restartPolicyRule RestartAllContainers",
    ),
    "a misspelled field of the pod": (
        in_pod(nodeSelectors={"a": "b"}),
        'unknown field "spec.template.spec.nodeSelectors"',
    ),
    "a misspelled field of a container": (
        in_trainer(imagePullPolice="Always"),
        'unknown field "spec.template.spec.containers[0].imagePullPolice"',
    ),
    "a misspelled field of an init container": (
        beside("initContainers", comand=["true"]),
        'unknown field "spec.template.spec.initContainers[0].comand"',
    ),
    "a pause that is no pod": (
        in_spec(
            "pause",
            requestTime="2026-11-22T22:00:00Z",
            template={"spec": {"containers": [{"name": "x", "image": "i", "comand": []}]}},
        ),
        'unknown field "spec.pause.template.spec.containers[0].comand"',
    ),
}
"""Stored, and then told in the condition Accepted."""


def edited(edit: Edit, name: str = "job") -> Json:
    """Build the quickstart with an edit."""
    job = deepcopy(QUICKSTART)
    job["metadata"] = {"name": name, "namespace": "default"}
    edit(job)
    return job
