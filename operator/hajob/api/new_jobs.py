"""What new jobs and edits are refused for, in CEL: what cannot be served, and what ends or binds pods behind our back.

Each of these is two rules on the whole object. One holds until the operator has written a status, so for a new job. The
other holds for an update, and refuses only what the update brings in. So a job that was stored before the rule keeps
working, on servers that do not ratchet (before 1.30) as well.

What CEL cannot say within its budget is in hajob.pods.review.
"""

import re
from typing import Final

from hajob.api.base import Json, validation_rule
from hajob.api.constants import (
    ANNOTATION_CONFIGURATION,
    ANNOTATION_GROUP_NAME,
    ANNOTATION_REAL_CHIPS,
    ANNOTATION_SCHEDULE_POLICY,
    ANNOTATION_SUPER_POD,
    ANNOTATION_SUPER_POD_RANK,
    DEFAULT_SCHEDULER,
    HOOK_CONTAINER,
    RANK_TABLE_VOLUME,
    TRAINER_CONTAINER,
)
from hajob.domain.patience import LONGEST_WAIT_SECONDS, MINDIO_WAIT_SECONDS

LONGEST_GRACE_SECONDS: Final = 3600
"""A pod that does not end holds its node, and a restart of its job, for so long."""

_POD: Final = "self.spec.template.spec"
_PATH: Final = "spec.template.spec"
_TAKEN: Final = ("agent", "install", "controller", HOOK_CONTAINER)
"""Container names of Hajob's: by them it knows whose end is the end of a pod's work."""
_TAKEN_VOLUMES: Final = ("hajob", "hajob-tls", "hajob-mindio-tls", RANK_TABLE_VOLUME)


def _refusal_rules(served: str, message: str, *, field: str, told: str = "", fixed: bool = False) -> tuple[Json, ...]:
    """The two rules; the first alone where no update can bring it in.

    Args:
        served: CEL over the object: that it may be so.
        message: names the field, and says what to do.
        field: path of the field, as in `rule`.
        told: as in `rule`.
        fixed: all fields of it are immutable.
    """
    new = validation_rule(f"has(self.status) || {served}", message, field=field, told=told)
    before = re.sub(r"\bself\b", "oldSelf", served)
    return (new,) if fixed else (new, validation_rule(f"{served} || !{before}", message, field=field, told=told))


def _absence_rules(name: str, message: str, *, told: str = "") -> tuple[Json, ...]:
    """A field of the pod's spec that may not be set."""
    return _refusal_rules(f"(!has({_POD}.{name}))", f"{_PATH}.{name} {message}", field=f".{_PATH}.{name}", told=told)


def _trainer_lacks(name: str, message: str) -> tuple[Json, ...]:
    return _refusal_rules(
        f"(!has({_POD}.containers) || {_POD}.containers.all(c, c.name != '{TRAINER_CONTAINER}' || !has(c.{name})))",
        f"container {TRAINER_CONTAINER} has {name}: {message}",
        field=f".{_PATH}.containers",
    )


def _free_name_rules(part: str, taken: tuple[str, ...]) -> tuple[Json, ...]:
    listed = ", ".join(f"'{name}'" for name in taken)
    return _refusal_rules(
        f"(!has({_POD}.{part}) || {_POD}.{part}.all(c, !has(c.name) || !(c.name in [{listed}])))",
        f"{_PATH}.{part} has a name that Hajob's own have ({', '.join(taken)}): choose another name",
        field=f".{_PATH}.{part}",
    )


_CHIPS: Final = "self.spec.accelerator.resourceName"


def _asks_for_chips(container: str) -> str:
    return " || ".join(
        f"(has({container}.resources) && has({container}.resources.{side}) && {_CHIPS} in {container}.resources.{side})"
        for side in ("limits", "requests")
    )


_MOUNTED: Final = "has(c.volumeMounts) && c.volumeMounts.exists(m, has(m.mountPath) && path.startsWith(m.mountPath))"
"""`path` is the checkpoints' with a slash behind it, for a mountPath may end in one. That `/ck` is not above `/ckpt` is
left to hajob.pods.review: putting a slash behind each mountPath exceeds the budget."""


def _log_pattern_rules() -> tuple[Json, ...]:
    """Patterns that are none: the comparison of `_refusal_rules` ends in an error where the stored one is none, too."""
    listed = "self.spec.recovery.logRules"
    before = listed.replace("self", "oldSelf")
    served = f"(!has({listed}) || {listed}.all(r, !''.matches(r.pattern)))"
    same = f"(has({listed}) && has({before}) && {listed} == {before})"
    message = (
        "a log rule needs a regular expression of RE2 that does not match the empty string, which every line would "
        "meet (docs/user/training-images.md, Log rules): write what only a fault prints"
    )
    field = ".spec.recovery.logRules"
    return (
        validation_rule(f"has(self.status) || {served}", message, field=field),
        validation_rule(f"{same} || {served}", message, field=field),
    )


_OF_VOLCANO: Final = "self.spec.scheduling.gangPolicy == 'Volcano'"
_SOFT_SHARE: Final = "huawei.com/scheduler.softShareDev"
ENDS_OR_SPLITS: Final = (
    *("fault-scheduling", "fault-retry-times", "pod-rescheduling", "process-recover-enable", "subHealthyStrategy"),
    *("elastic-scheduling", "tor-affinity", "super-pod-affinity", "podgroup-sched-enable", "volcano.sh/task-spec"),
    *(f"{_SOFT_SHARE}.policy", f"{_SOFT_SHARE}.aicoreQuota", f"{_SOFT_SHARE}.hbmQuota"),
)
"""Labels of a pod by which Huawei's plugin in Volcano deletes all pods of a job, places them by rules of its own, or
shares their chips with others: one of the pods is enough. Volcano 1.15 reads the task of a pod off a label, too."""
READ_FROM_PODS: Final = (
    *(ANNOTATION_GROUP_NAME, ANNOTATION_SCHEDULE_POLICY, "huawei.com/schedule_minAvailable"),
    *("huawei.com/recover_policy_path", "huawei.com/affinity-config", "huawei.com/skip-ascend-plugin"),
    *("huawei.com/infer_service_schedule", "sp-block", "sp-fit", "ra-block", "volcano.sh/task-spec"),
    "backupSourcePodName",
)
"""Annotations of a pod that Volcano and the plugin read as if they were the PodGroup's, which is Hajob's; the last one
makes every pod the successor of another to the plugin."""
TELLS_CHIPS: Final = (
    *(ANNOTATION_REAL_CHIPS, ANNOTATION_CONFIGURATION, "ascend.kubectl.kubernetes.io/ascend-npu-configuration"),
    *("huawei.com/kltDev", "predicate-time", ANNOTATION_SUPER_POD, ANNOTATION_SUPER_POD_RANK),
)
"""Annotations by which the scheduler and the device plugin tell the chips of one pod. In a template they would be said
of every pod, the device plugin would correct none of them, and faults of the right chips would count for nobody."""


def _absent_key_rules(
    part: str, keys: tuple[str, ...], why: str, *, unless: str = "false", more: str = ""
) -> tuple[Json, ...]:
    """Labels or annotations of the template that may not be there, told by name.

    Args:
        part: labels or annotations.
        keys: what may not be there.
        why: what it would do.
        unless: CEL over the object: when they may be there.
        more: CEL for one more key.
    """
    listed = [*map(repr, keys), *filter(None, [more])]
    there = f"has(self.spec.template.metadata) && has(self.spec.template.metadata.{part})"
    # The first that is there: the server's estimate for a list of those that are exceeds the budget of a whole CRD.
    first = "".join(f"{key} in self.spec.template.metadata.{part} ? {key} : " for key in listed[:-1]) + listed[-1]
    return _refusal_rules(
        f"({unless} || !({there}) || ![{', '.join(listed)}].exists(key, key in self.spec.template.metadata.{part}))",
        f"spec.template.metadata.{part}: {why}; leave it out",
        field=f".spec.template.metadata.{part}",
        told=f"({first})",
    )


def _volcano_rules() -> tuple[Json, ...]:
    """What of the template would turn Volcano, or Huawei's plugin in it, against the job."""
    found = list[Json]()
    for part, keys, why in (
        (
            "labels",
            ENDS_OR_SPLITS,
            "by it Volcano's Ascend plugin deletes or moves pods of the job behind Hajob's back",
        ),
        ("annotations", READ_FROM_PODS, "Hajob writes what Volcano reads, into the job's PodGroup"),
    ):
        found += _absent_key_rules(part, keys, why, unless=f"!({_OF_VOLCANO})")
    return (
        *found,
        *_refusal_rules(
            f"(!({_OF_VOLCANO}) || !has({_POD}.schedulerName) || {_POD}.schedulerName != '{DEFAULT_SCHEDULER}')",
            f"{_PATH}.schedulerName: {DEFAULT_SCHEDULER} knows no PodGroups of Volcano: leave it out, or name the "
            "scheduler of Volcano",
            field=f".{_PATH}",
        ),
        *_refusal_rules(
            f"(!({_OF_VOLCANO}) || self.spec.accelerator.product != 'A3' || "
            "!has(self.spec.accelerator.chipsPerNode) || self.spec.accelerator.chipsPerNode % 2 == 0)",
            "spec.accelerator.chipsPerNode is odd: on A3 nodes Volcano's Ascend plugin gives chips in pairs; choose an "
            "even number",
            field=".spec.accelerator.chipsPerNode",
        ),
    )


def _super_pod_rules() -> tuple[Json, ...]:
    """What blocks of nodes in super pods need."""
    without = "(self.spec.accelerator.product != 'A3' || !has(self.spec.accelerator.superPodChips) || "
    chips = "(has(self.spec.accelerator.chipsPerNode) ? self.spec.accelerator.chipsPerNode : 16)"
    field = ".spec.accelerator.superPodChips"
    return (
        *_refusal_rules(
            f"{without}self.spec.scheduling.gangPolicy != 'None')",
            "spec.accelerator.superPodChips needs room for whole blocks before the first pod is placed, and "
            "scheduling.gangPolicy: None places pods one by one: leave one of them out",
            field=field,
        ),
        *_refusal_rules(
            f"{without}(self.spec.numNodes * {chips}) % self.spec.accelerator.superPodChips == 0)",
            "the chips cannot be divided into blocks: numNodes × accelerator.chipsPerNode (16 when left out) must be a "
            "multiple of accelerator.superPodChips",
            field=field,
            fixed=True,
        ),
        *_refusal_rules(
            f"{without}self.spec.elastic.restartSize == 'Original')",
            "spec.elastic.restartSize: Available starts with any number of nodes, and spec.accelerator.superPodChips "
            "needs whole blocks: leave one of them out",
            field=".spec.elastic.restartSize",
        ),
        *_refusal_rules(
            f"{without}self.spec.scheduling.spareMode == 'Placeholder')",
            "spec.scheduling.spareMode: Warm starts a pod before it is known to which block it will belong, and "
            "spec.accelerator.superPodChips gives each block a number: leave one of them out",
            field=".spec.scheduling.spareMode",
        ),
    )


_UNSERVED: Final = "is not supported by this version of Hajob yet: leave it out"

RULES: Final[tuple[Json, ...]] = (
    *_absence_rules(
        "nodeName",
        "binds every pod to one node, past the scheduler: leave it out, and choose nodes by nodeSelector or affinity",
        told=f"{_POD}.nodeName",
    ),
    *_refusal_rules(
        f"(!has({_POD}.schedulingGates) || size({_POD}.schedulingGates) == 0)",
        f"{_PATH}.schedulingGates keeps every pod from being placed, and nobody opens the gates of the pods that Hajob "
        "makes later: leave it out, and hold the job with spec.suspend",
        field=f".{_PATH}.schedulingGates",
    ),
    *_refusal_rules(
        f"(!has({_POD}.restartPolicy) || {_POD}.restartPolicy == 'Never')",
        f"{_PATH}.restartPolicy must be Never, or left out: Hajob restarts what fails, and nobody behind its back",
        field=f".{_PATH}.restartPolicy",
        told=f"{_POD}.restartPolicy",
    ),
    *_absence_rules(
        "activeDeadlineSeconds",
        "would end each pod by itself, which counts as a fault of its node: leave it out, and limit the job with "
        "spec.activeDeadlineSeconds",
    ),
    *_refusal_rules(
        f"(!has({_POD}.terminationGracePeriodSeconds) || ({_POD}.terminationGracePeriodSeconds >= 1 && "
        f"{_POD}.terminationGracePeriodSeconds <= {LONGEST_GRACE_SECONDS}))",
        f"{_PATH}.terminationGracePeriodSeconds must be 1 to {LONGEST_GRACE_SECONDS}: with 0 a pod is forgotten while "
        "its processes run, and a pod that does not end holds its node and the job's restart for so long",
        field=f".{_PATH}.terminationGracePeriodSeconds",
    ),
    *_absence_rules("hostname", "would give all rank pods one name: leave it out; a pod's name is its host name"),
    *_absence_rules(
        "hostnameOverride", "would give all rank pods one name: leave it out; a pod's name is its host name"
    ),
    *_refusal_rules(
        f"(!has({_POD}.setHostnameAsFQDN) || !{_POD}.setHostnameAsFQDN)",
        f"{_PATH}.setHostnameAsFQDN makes host names longer than the 64 characters of a node, where the pods would not "
        "start: leave it out",
        field=f".{_PATH}.setHostnameAsFQDN",
    ),
    *_refusal_rules(
        f"(!has({_POD}.os) || !has({_POD}.os.name) || {_POD}.os.name == 'linux')",
        f"{_PATH}.os.name must be linux, or left out: Hajob's containers run on Linux",
        field=f".{_PATH}.os",
    ),
    *_trainer_lacks(
        "livenessProbe", "it would end a training that Hajob looks after; leave it out, spec.recovery.hang finds hangs"
    ),
    *_trainer_lacks(
        "startupProbe", "it would end a training that loads for long; leave it out, see spec.startupDeadlineSeconds"
    ),
    *_trainer_lacks("restartPolicy", "the kubelet would restart it behind Hajob's back; leave it out"),
    *_trainer_lacks("restartPolicyRules", "the kubelet would restart it behind Hajob's back; leave it out"),
    *_refusal_rules(
        f"(!has({_POD}.containers) || {_POD}.containers.all(c, c.name != '{TRAINER_CONTAINER}' || !has(c.lifecycle) || "
        "!has(c.lifecycle.stopSignal) || c.lifecycle.stopSignal == 'SIGTERM'))",
        f"container {TRAINER_CONTAINER} has lifecycle.stopSignal: Hajob's launcher ends the ranks at SIGTERM; leave it "
        "out",
        field=f".{_PATH}.containers",
    ),
    *_free_name_rules("containers", _TAKEN),
    *_free_name_rules("initContainers", _TAKEN),
    *_free_name_rules("volumes", _TAKEN_VOLUMES),
    *_refusal_rules(
        f"(!has({_POD}.containers) || {_POD}.containers.all(c, c.name == '{TRAINER_CONTAINER}' || "
        f"!({_asks_for_chips('c')})))",
        f"another container than {TRAINER_CONTAINER} asks for accelerator.resourceName: all chips of a node are the "
        f"ranks', which run in {TRAINER_CONTAINER}; take the chips out of its resources",
        field=f".{_PATH}.containers",
        fixed=True,
    ),
    *_refusal_rules(
        f"(!has({_POD}.initContainers) || {_POD}.initContainers.all(c, !({_asks_for_chips('c')})))",
        f"an init container asks for accelerator.resourceName: all chips of a node are the ranks', which run in "
        f"{TRAINER_CONTAINER}; take the chips out of its resources",
        field=f".{_PATH}.initContainers",
        fixed=True,
    ),
    *_refusal_rules(
        f"(!self.spec.checkpoint.path.startsWith('/') || !has({_POD}.containers) || "
        f"[self.spec.checkpoint.path + '/'].all(path, {_POD}.containers.all(c, "
        f"c.name != '{TRAINER_CONTAINER}' || ({_MOUNTED}))))",
        f"spec.checkpoint.path lies on no volume, and every checkpoint would be lost with its pod: mount a volume that "
        f"all ranks share into container {TRAINER_CONTAINER}, at this path or above it (volumeMounts, mountPath)",
        field=".spec.checkpoint.path",
        told="self.spec.checkpoint.path",
        fixed=True,
    ),
    *_refusal_rules(
        f"(self.spec.recovery.replacementTimeoutSeconds <= {LONGEST_WAIT_SECONDS})",
        f"MindIO holds the training while a replacement is awaited, for {MINDIO_WAIT_SECONDS} s at most, and the next "
        f"action needs the last two minutes: set recovery.replacementTimeoutSeconds to {LONGEST_WAIT_SECONDS} or less",
        field=".spec.recovery.replacementTimeoutSeconds",
    ),
    *_log_pattern_rules(),
    *_refusal_rules(
        "(self.spec.launcher != 'TaskD' || self.spec.network.mindIOTLSPolicy == 'Disabled')",
        "spec.network.mindIOTLSPolicy: Enabled does not go with launcher: TaskD: TaskD starts MindIO's controller "
        "without TLS; leave it out",
        field=".spec.network.mindIOTLSPolicy",
        fixed=True,
    ),
    *_refusal_rules(
        "(self.spec.launcher == 'Hajob' || self.spec.framework == 'PyTorch')",
        f"spec.launcher: TaskD with framework: MindSpore {_UNSERVED}",
        field=".spec.launcher",
        fixed=True,
    ),
    *_refusal_rules(
        "(!has(self.spec.pause) || self.spec.launcher == 'TaskD' || (!has(self.spec.pause.stressTest) && "
        "(!has(self.spec.pause.switchRails) || size(self.spec.pause.switchRails) == 0)))",
        "spec.pause.stressTest and switchRails are TaskD's work, and spec.launcher is not TaskD: give the pause a "
        "template, whose pods do the work on the nodes",
        field=".spec.pause",
    ),
    *_refusal_rules(
        "(!has(self.spec.pause) || !has(self.spec.pause.switchRails) || size(self.spec.pause.switchRails) == 0 || "
        "self.spec.accelerator.product == 'A3')",
        "spec.pause.switchRails needs rails that a chip can borrow, which only A3 has: leave it out",
        field=".spec.pause",
    ),
    *_refusal_rules(
        f"(!has(self.spec.scheduling.queueName) || self.spec.scheduling.queueName == '' || {_OF_VOLCANO})",
        "spec.scheduling.queueName is a queue of Volcano and means nothing here: set scheduling.gangPolicy to Volcano, "
        "or leave queueName out",
        field=".spec.scheduling.queueName",
        told="self.spec.scheduling.queueName",
    ),
    *_absent_key_rules(
        "annotations",
        TELLS_CHIPS,
        "scheduler and device plugin tell by it which chips one pod has, and in a template it would be said of all",
        more=_CHIPS,
    ),
    *_volcano_rules(),
    *_refusal_rules(
        "(!has(self.spec.output) || !has(self.spec.output.path) || self.spec.output.path == '' || "
        "self.spec.output.path.startsWith('/'))",
        "spec.output.path must be absolute: write the path where the container trainer mounts the volume",
        field=".spec.output.path",
        told="self.spec.output.path",
    ),
    *_refusal_rules(
        "(!has(self.spec.network.interface) || "
        "self.spec.network.interface.matches('^[=^]?[A-Za-z0-9_.@-]+(,[A-Za-z0-9_.@-]+)*$'))",
        "spec.network.interface must be the name of a network interface, as `ip link` shows it (eth0), without blanks: "
        "HCCL and Gloo take it as it is",
        field=".spec.network.interface",
        told="self.spec.network.interface",
    ),
    *_refusal_rules(
        "(self.spec.framework != 'MindSpore' || self.spec.elastic.restartSize == 'Original')",
        f"spec.elastic.restartSize: Available with framework: MindSpore {_UNSERVED}",
        field=".spec.elastic.restartSize",
    ),
    *_super_pod_rules(),
    *_refusal_rules(
        "(self.spec.checkpoint.savedLimit == 2)",
        f"spec.checkpoint.savedLimit {_UNSERVED}",
        field=".spec.checkpoint.savedLimit",
        fixed=True,
    ),
)
