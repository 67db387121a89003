"""The words that may stand in a HATrainingJob, spelled as in the YAML.

They are `StrEnum`s so that a value compares and prints as the word a person wrote. Words that the arithmetic and the
planner need as well are declared in hajob.domain.
"""

from enum import StrEnum


class Framework(StrEnum):
    """The training framework of the image."""

    PYTORCH = "PyTorch"
    MINDSPORE = "MindSpore"


class Product(StrEnum):
    """The generation of the nodes."""

    A2 = "A2"
    A3 = "A3"


class Launcher(StrEnum):
    """Who starts the rank processes in the trainer container."""

    HAJOB = "Hajob"
    TASKD = "TaskD"


class ResumePolicy(StrEnum):
    """Who makes sure that a restart of the whole job goes on from its checkpoint."""

    SCRIPT = "Script"
    ARGUMENTS = "Arguments"


class GangPolicy(StrEnum):
    """Who makes sure that the pods of a job start together."""

    NONE = "None"
    SCHEDULING_GATES = "SchedulingGates"
    VOLCANO = "Volcano"


class RecoveryMode(StrEnum):
    """How far Hajob goes on its own."""

    ENFORCE = "Enforce"
    OBSERVE = "Observe"
    HOLD = "Hold"


class SubHealthPolicy(StrEnum):
    """What is done about a node that works badly."""

    IGNORE = "Ignore"
    CHECKPOINT = "Checkpoint"
    MIGRATE = "Migrate"
    EVICT = "Evict"


class CordonPolicy(StrEnum):
    """What is done about a node that was cordoned under a running job."""

    IGNORE = "Ignore"
    MIGRATE = "Migrate"


class CoordinatorLossPolicy(StrEnum):
    """When a job is restarted whose MindIO controller is gone."""

    AT_NEXT_CHECKPOINT = "AtNextCheckpoint"
    IMMEDIATELY = "Immediately"
    NEVER = "Never"


class ElasticPolicy(StrEnum):
    """Whether a job may go on with fewer data-parallel ranks."""

    ENABLED = "Enabled"
    DISABLED = "Disabled"


class ShrunkPodPolicy(StrEnum):
    """What happens to the healthy pods of a dropped data-parallel rank."""

    KEEP = "Keep"
    RELEASE = "Release"


class RestartSize(StrEnum):
    """With how many data-parallel ranks a job is restarted."""

    ORIGINAL = "Original"
    AVAILABLE = "Available"


class WaitingPodPolicy(StrEnum):
    """What a start that waits for nodes does with the chips it has got already."""

    KEEP = "Keep"
    RELEASE = "Release"


class RestartCheckpointPolicy(StrEnum):
    """Whether a restart that is asked for may lose steps."""

    IF_POSSIBLE = "IfPossible"
    REQUIRED = "Required"


class SpareMode(StrEnum):
    """What runs on a spare node."""

    PLACEHOLDER = "Placeholder"
    WARM = "Warm"


class StressOperation(StrEnum):
    """What a stress test tests."""

    AI_CORE = "AiCore"
    POINT_TO_POINT = "PointToPoint"


class Rail(StrEnum):
    """The network rail that a chip sends on."""

    OWN = "Own"
    BORROWED = "Borrowed"


class MindIOTLSPolicy(StrEnum):
    """Whether gate and coordinator speak TLS on MindIO's port."""

    DISABLED = "Disabled"
    ENABLED = "Enabled"


class RankTablePolicy(StrEnum):
    """Whether rank pods get MindCluster's rank table, hccl.json."""

    DISABLED = "Disabled"
    ENABLED = "Enabled"


class ConditionStatus(StrEnum):
    """The status of a condition as Kubernetes spells it."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"
