"""The enumerations of the package's public face, and the words the two sides use between themselves."""

from __future__ import annotations

from enum import Enum, IntEnum


class ReportState(Enum):
    """What a training thread tells the controller about itself."""

    RS_NORMAL = 0
    RS_RETRY = 1
    RS_UCE = 2
    RS_UCE_CORRUPTED = 3
    RS_HCCL_FAILED = 4
    RS_INIT_FINISH = 5
    RS_PREREPAIR_FINISH = 6
    RS_STEP_FINISH = 7
    RS_UNKNOWN = 8


class RepairType(Enum):
    """What a rank does in a repair."""

    RT_SEND = 0
    RT_UCE_HIGHLEVEL = 1
    RT_UCE_LOWLEVEL = 2
    RT_RECV_REPAIR = 3
    RT_ROLLBACK = 4
    RT_LOAD_CKPT = 5
    RT_LOAD_REBUILD = 6


class Action(Enum):
    """What a training thread does after it was stopped."""

    RETRY = 0
    EXIT = 1


class OptimizerType(Enum):
    """The two kinds of replica groups."""

    ATTENTION = 0
    MOE = 1


class FaultType(IntEnum):
    """The type of a fault as the callbacks carry it."""

    DEVICE = 0
    PROCESS = 1
    COMMUNICATION = 2


class Status(Enum):
    """What the controller holds a rank for."""

    NORMAL = "normal"
    FAULTY = "faulty"
    ISOLATED = "isolated"
    INITIALISED = "initialised"
    READY = "ready"
    STEP_FINISH = "step finish"
    GONE = "gone"


#: The fault type that a reported state means; states that are missing are no fault.
FAULT_OF_STATE = {
    ReportState.RS_UCE: FaultType.DEVICE,
    ReportState.RS_UCE_CORRUPTED: FaultType.DEVICE,
    ReportState.RS_HCCL_FAILED: FaultType.COMMUNICATION,
    ReportState.RS_UNKNOWN: FaultType.PROCESS,
}
