"""Every name that Hajob writes into a cluster, in one place.

They are part of the API: people select by these labels and scripts wait for these words, so a change here is a
change of the API and not of the code.
"""

from typing import Final

GROUP: Final = "training.hajob.io"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "HATrainingJob"
PLURAL: Final = "hatrainingjobs"

QUARANTINE_KIND: Final = "NodeQuarantine"
QUARANTINES: Final = "nodequarantines"
CRD_NAME: Final = f"{PLURAL}.{GROUP}"
QUARANTINE_CRD_NAME: Final = f"{QUARANTINES}.{GROUP}"

FINALIZER: Final = f"{GROUP}/finalizer"
MANAGED_BY: Final = f"{GROUP}/operator"
OPERATOR_NAME: Final = "hajob"

LABEL_JOB_NAME: Final = f"{GROUP}/job-name"
LABEL_JOB_UID: Final = f"{GROUP}/job-uid"
LABEL_NODE_RANK: Final = f"{GROUP}/node-rank"
LABEL_INCARNATION: Final = f"{GROUP}/incarnation"
LABEL_ROLE: Final = f"{GROUP}/role"
GATE: Final = f"{GROUP}/gang"  # of pods that wait for nodes for all of their job
LABEL_SPARE_MODE: Final = f"{GROUP}/spare-mode"
LABEL_PLACEMENT: Final = f"{GROUP}/placement"
ROLE_RANK: Final = "rank"
ROLE_COORDINATOR: Final = "coordinator"
ROLE_SPARE: Final = "spare"
ROLE_HOOK: Final = "hook"
HOOK_CONTAINER: Final = "hajob-hook"
PLACEMENT_APART: Final = "apart"
PLACEMENT_ANYWHERE: Final = "anywhere"

# Read by Volcano's Ascend plugin, by Kubeflow's tools and by dashboards made for them (docs/admin/pods.md).
LABEL_KUBEFLOW_JOB_NAME: Final = "training.kubeflow.org/job-name"
LABEL_KUBEFLOW_OPERATOR_NAME: Final = "training.kubeflow.org/operator-name"
LABEL_PLAIN_JOB_NAME: Final = "job-name"
ANNOTATION_RANK_INDEX: Final = "hccl/rankIndex"
# Volcano's, and those of Huawei's plugin in it (docs/admin/schedulers.md).
VOLCANO_GROUP: Final = "scheduling.volcano.sh"
VOLCANO_API_VERSION: Final = f"{VOLCANO_GROUP}/v1beta1"
POD_GROUPS: Final = "podgroups"
VOLCANO_QUEUES: Final = "queues"
VOLCANO_SCHEDULER: Final = "volcano"
VOLCANO_DEFAULT_QUEUE: Final = "default"
DEFAULT_SCHEDULER: Final = "default-scheduler"
ANNOTATION_GROUP_NAME: Final = "scheduling.k8s.io/group-name"
ANNOTATION_SUPER_POD_BLOCK: Final = "sp-block"
ANNOTATION_SUPER_POD: Final = "super-pod-id"
ANNOTATION_SUPER_POD_RANK: Final = "super-pod-rank"
LABEL_NODE_SUPER_POD: Final = "huawei.com/topotree.superpodid"  # written by the device plugin
ANNOTATION_REAL_CHIPS: Final = "huawei.com/AscendReal"
ANNOTATION_CONFIGURATION: Final = "ascend.kubectl.kubernetes.io/ascend-910-configuration"
ANNOTATION_SCHEDULE_POLICY: Final = "huawei.com/schedule_policy"

# Kueue's: on a HATrainingJob the queue and its priority class, on a Workload whose it is (docs/admin/schedulers.md).
KUEUE_GROUP: Final = "kueue.x-k8s.io"
KUEUE_API_VERSION: Final = f"{KUEUE_GROUP}/v1beta2"
LABEL_QUEUE: Final = f"{KUEUE_GROUP}/queue-name"
LABEL_QUEUE_PRIORITY: Final = f"{KUEUE_GROUP}/priority-class"
LABEL_QUEUE_JOB_UID: Final = f"{KUEUE_GROUP}/job-uid"
ANNOTATION_SUSPENDED: Final = f"{GROUP}/suspended"  # of a Workload that Hajob has deactivated, so that it activates it
ANNOTATION_DIGEST: Final = f"{GROUP}/digest"  # of what was asked for: the server adds fields of its own

LABEL_HOSTNAME: Final = "kubernetes.io/hostname"  # written by the kubelet
LABEL_NODE_ACCELERATOR: Final = "accelerator"  # written by the device plugin on nodes that have chips

RANK_TABLE_VOLUME: Final = "hajob-rank-table"
RANK_TABLE_DIRECTORY: Final = "/user/serverid/devindex/config"  # where images made for MindCluster look for hccl.json
RANK_TABLE_FILE: Final = f"{RANK_TABLE_DIRECTORY}/hccl.json"
NPU_RESOURCE_NAME: Final = "huawei.com/npu"  # of chips after A3, whose rank tables have another form

TRAINER_CONTAINER: Final = "trainer"
COORDINATOR_TOKEN_AUDIENCE: Final = f"{GROUP}/coordinator"

JOB_NAME_MAX_LENGTH: Final = 40  # `<job>-coordinator-<hash>` stays within the 63 characters of a DNS label
DEFAULT_RESOURCE_NAME: Final = "huawei.com/Ascend910"
FAULT_NAMESPACES: Final = "kube-system,mindx-dl"  # where MindCluster's components write their ConfigMaps
COORDINATOR_PORT: Final = 7070
COORDINATOR_PORT_NAME: Final = "coordinator"
