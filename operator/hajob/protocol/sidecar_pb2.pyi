from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Action(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACTION_UNSPECIFIED: _ClassVar[Action]
    START: _ClassVar[Action]
    RETRY: _ClassVar[Action]
    IN_PLACE: _ClassVar[Action]
    REPLACE: _ClassVar[Action]
    SHRINK: _ClassVar[Action]
    EXPAND: _ClassVar[Action]
    CHECKPOINT: _ClassVar[Action]
    STOP: _ClassVar[Action]
    PAUSE: _ClassVar[Action]
    CONTINUE: _ClassVar[Action]
    MIGRATE: _ClassVar[Action]

class TrainingEnd(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRAINS: _ClassVar[TrainingEnd]
    LAST_STEP_ENDED: _ClassVar[TrainingEnd]
    FINAL_CHECKPOINT: _ClassVar[TrainingEnd]

class RankPhase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ABSENT: _ClassVar[RankPhase]
    STARTING: _ClassVar[RankPhase]
    AT_GATE: _ClassVar[RankPhase]
    LINKED: _ClassVar[RankPhase]
    FINISHED: _ClassVar[RankPhase]
    DEAD: _ClassVar[RankPhase]

class FactKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FACT_UNSPECIFIED: _ClassVar[FactKind]
    PROCESS_EXITED: _ClassVar[FactKind]
    AGENT_SILENT: _ClassVar[FactKind]
    MEMORY_FAULT: _ClassVar[FactKind]
    COMMUNICATION_FAULT: _ClassVar[FactKind]
    PROCESS_FAULT: _ClassVar[FactKind]
    HANG: _ClassVar[FactKind]
    LOG_RULE: _ClassVar[FactKind]
    HEARTBEAT_SILENT: _ClassVar[FactKind]
    SCRIPT_ENDED: _ClassVar[FactKind]
    CONTROLLER_LOST: _ClassVar[FactKind]
    PORT_TAKEN: _ClassVar[FactKind]
    STACK: _ClassVar[FactKind]

class MilestoneKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MILESTONE_UNSPECIFIED: _ClassVar[MilestoneKind]
    STARTED: _ClassVar[MilestoneKind]
    STOP_ACCEPTED: _ClassVar[MilestoneKind]
    STOPPED: _ClassVar[MilestoneKind]
    REPLACEMENTS_STARTED: _ClassVar[MilestoneKind]
    REPLACEMENTS_READY: _ClassVar[MilestoneKind]
    NAMED: _ClassVar[MilestoneKind]
    STRATEGIES: _ClassVar[MilestoneKind]
    STRATEGY_SENT: _ClassVar[MilestoneKind]
    RESUMED: _ClassVar[MilestoneKind]
    RESULT: _ClassVar[MilestoneKind]
    FINISHED_ALL: _ClassVar[MilestoneKind]
    STEP_BEFORE: _ClassVar[MilestoneKind]
    TAKEN_OVER: _ClassVar[MilestoneKind]
ACTION_UNSPECIFIED: Action
START: Action
RETRY: Action
IN_PLACE: Action
REPLACE: Action
SHRINK: Action
EXPAND: Action
CHECKPOINT: Action
STOP: Action
PAUSE: Action
CONTINUE: Action
MIGRATE: Action
TRAINS: TrainingEnd
LAST_STEP_ENDED: TrainingEnd
FINAL_CHECKPOINT: TrainingEnd
ABSENT: RankPhase
STARTING: RankPhase
AT_GATE: RankPhase
LINKED: RankPhase
FINISHED: RankPhase
DEAD: RankPhase
FACT_UNSPECIFIED: FactKind
PROCESS_EXITED: FactKind
AGENT_SILENT: FactKind
MEMORY_FAULT: FactKind
COMMUNICATION_FAULT: FactKind
PROCESS_FAULT: FactKind
HANG: FactKind
LOG_RULE: FactKind
HEARTBEAT_SILENT: FactKind
SCRIPT_ENDED: FactKind
CONTROLLER_LOST: FactKind
PORT_TAKEN: FactKind
STACK: FactKind
MILESTONE_UNSPECIFIED: MilestoneKind
STARTED: MilestoneKind
STOP_ACCEPTED: MilestoneKind
STOPPED: MilestoneKind
REPLACEMENTS_STARTED: MilestoneKind
REPLACEMENTS_READY: MilestoneKind
NAMED: MilestoneKind
STRATEGIES: MilestoneKind
STRATEGY_SENT: MilestoneKind
RESUMED: MilestoneKind
RESULT: MilestoneKind
FINISHED_ALL: MilestoneKind
STEP_BEFORE: MilestoneKind
TAKEN_OVER: MilestoneKind

class Hello(_message.Message):
    __slots__ = ("version", "job_uid", "fence", "incarnation", "pod_name", "pod_uid", "token", "highest_version")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    JOB_UID_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    POD_NAME_FIELD_NUMBER: _ClassVar[int]
    POD_UID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    job_uid: str
    fence: int
    incarnation: int
    pod_name: str
    pod_uid: str
    token: str
    highest_version: int
    def __init__(self, version: _Optional[int] = ..., job_uid: _Optional[str] = ..., fence: _Optional[int] = ..., incarnation: _Optional[int] = ..., pod_name: _Optional[str] = ..., pod_uid: _Optional[str] = ..., token: _Optional[str] = ..., highest_version: _Optional[int] = ...) -> None: ...

class OperatorMessage(_message.Message):
    __slots__ = ("hello", "assignment", "order", "acknowledge")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGE_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    assignment: Assignment
    order: Order
    acknowledge: Acknowledge
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., assignment: _Optional[_Union[Assignment, _Mapping]] = ..., order: _Optional[_Union[Order, _Mapping]] = ..., acknowledge: _Optional[_Union[Acknowledge, _Mapping]] = ...) -> None: ...

class Acknowledge(_message.Message):
    __slots__ = ("sequence",)
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    def __init__(self, sequence: _Optional[int] = ...) -> None: ...

class Assignment(_message.Message):
    __slots__ = ("revision", "world_size", "ranks_per_node", "attempt", "environment", "pods", "standing_orders", "log_rules", "hang_rule", "checkpoint_rules", "pause_work", "rank_table")
    class EnvironmentEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REVISION_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    RANKS_PER_NODE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    PODS_FIELD_NUMBER: _ClassVar[int]
    STANDING_ORDERS_FIELD_NUMBER: _ClassVar[int]
    LOG_RULES_FIELD_NUMBER: _ClassVar[int]
    HANG_RULE_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_RULES_FIELD_NUMBER: _ClassVar[int]
    PAUSE_WORK_FIELD_NUMBER: _ClassVar[int]
    RANK_TABLE_FIELD_NUMBER: _ClassVar[int]
    revision: int
    world_size: int
    ranks_per_node: int
    attempt: int
    environment: _containers.ScalarMap[str, str]
    pods: _containers.RepeatedCompositeFieldContainer[RankPod]
    standing_orders: StandingOrders
    log_rules: _containers.RepeatedCompositeFieldContainer[LogRule]
    hang_rule: HangRule
    checkpoint_rules: CheckpointRules
    pause_work: str
    rank_table: RankTable
    def __init__(self, revision: _Optional[int] = ..., world_size: _Optional[int] = ..., ranks_per_node: _Optional[int] = ..., attempt: _Optional[int] = ..., environment: _Optional[_Mapping[str, str]] = ..., pods: _Optional[_Iterable[_Union[RankPod, _Mapping]]] = ..., standing_orders: _Optional[_Union[StandingOrders, _Mapping]] = ..., log_rules: _Optional[_Iterable[_Union[LogRule, _Mapping]]] = ..., hang_rule: _Optional[_Union[HangRule, _Mapping]] = ..., checkpoint_rules: _Optional[_Union[CheckpointRules, _Mapping]] = ..., pause_work: _Optional[str] = ..., rank_table: _Optional[_Union[RankTable, _Mapping]] = ...) -> None: ...

class RankTable(_message.Message):
    __slots__ = ("version", "content", "pod_uids")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    POD_UIDS_FIELD_NUMBER: _ClassVar[int]
    version: str
    content: bytes
    pod_uids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, version: _Optional[str] = ..., content: _Optional[bytes] = ..., pod_uids: _Optional[_Iterable[str]] = ...) -> None: ...

class CheckpointRules(_message.Message):
    __slots__ = ("framework", "num_nodes", "chips_per_node", "tensor", "pipeline", "context", "expert", "expert_tensor", "rank_order", "sharding", "copies", "passed_over")
    FRAMEWORK_FIELD_NUMBER: _ClassVar[int]
    NUM_NODES_FIELD_NUMBER: _ClassVar[int]
    CHIPS_PER_NODE_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    PIPELINE_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    EXPERT_FIELD_NUMBER: _ClassVar[int]
    EXPERT_TENSOR_FIELD_NUMBER: _ClassVar[int]
    RANK_ORDER_FIELD_NUMBER: _ClassVar[int]
    SHARDING_FIELD_NUMBER: _ClassVar[int]
    COPIES_FIELD_NUMBER: _ClassVar[int]
    PASSED_OVER_FIELD_NUMBER: _ClassVar[int]
    framework: str
    num_nodes: int
    chips_per_node: int
    tensor: int
    pipeline: int
    context: int
    expert: int
    expert_tensor: int
    rank_order: str
    sharding: str
    copies: int
    passed_over: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, framework: _Optional[str] = ..., num_nodes: _Optional[int] = ..., chips_per_node: _Optional[int] = ..., tensor: _Optional[int] = ..., pipeline: _Optional[int] = ..., context: _Optional[int] = ..., expert: _Optional[int] = ..., expert_tensor: _Optional[int] = ..., rank_order: _Optional[str] = ..., sharding: _Optional[str] = ..., copies: _Optional[int] = ..., passed_over: _Optional[_Iterable[int]] = ...) -> None: ...

class HangRule(_message.Message):
    __slots__ = ("step_time_multiple", "minimum_seconds")
    STEP_TIME_MULTIPLE_FIELD_NUMBER: _ClassVar[int]
    MINIMUM_SECONDS_FIELD_NUMBER: _ClassVar[int]
    step_time_multiple: int
    minimum_seconds: int
    def __init__(self, step_time_multiple: _Optional[int] = ..., minimum_seconds: _Optional[int] = ...) -> None: ...

class LogRule(_message.Message):
    __slots__ = ("name", "pattern", "threshold", "start_delay_seconds", "window_seconds")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    START_DELAY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_SECONDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    pattern: str
    threshold: int
    start_delay_seconds: int
    window_seconds: int
    def __init__(self, name: _Optional[str] = ..., pattern: _Optional[str] = ..., threshold: _Optional[int] = ..., start_delay_seconds: _Optional[int] = ..., window_seconds: _Optional[int] = ...) -> None: ...

class RankPod(_message.Message):
    __slots__ = ("node_rank", "pod_name", "pod_uid", "address", "incarnation", "node_name")
    NODE_RANK_FIELD_NUMBER: _ClassVar[int]
    POD_NAME_FIELD_NUMBER: _ClassVar[int]
    POD_UID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    NODE_NAME_FIELD_NUMBER: _ClassVar[int]
    node_rank: int
    pod_name: str
    pod_uid: str
    address: str
    incarnation: int
    node_name: str
    def __init__(self, node_rank: _Optional[int] = ..., pod_name: _Optional[str] = ..., pod_uid: _Optional[str] = ..., address: _Optional[str] = ..., incarnation: _Optional[int] = ..., node_name: _Optional[str] = ...) -> None: ...

class StandingOrders(_message.Message):
    __slots__ = ("decision_timeout_milliseconds", "allow_in_place", "allow_checkpoint", "allow_retry", "save_after_milliseconds")
    DECISION_TIMEOUT_MILLISECONDS_FIELD_NUMBER: _ClassVar[int]
    ALLOW_IN_PLACE_FIELD_NUMBER: _ClassVar[int]
    ALLOW_CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    ALLOW_RETRY_FIELD_NUMBER: _ClassVar[int]
    SAVE_AFTER_MILLISECONDS_FIELD_NUMBER: _ClassVar[int]
    decision_timeout_milliseconds: int
    allow_in_place: bool
    allow_checkpoint: bool
    allow_retry: bool
    save_after_milliseconds: int
    def __init__(self, decision_timeout_milliseconds: _Optional[int] = ..., allow_in_place: _Optional[bool] = ..., allow_checkpoint: _Optional[bool] = ..., allow_retry: _Optional[bool] = ..., save_after_milliseconds: _Optional[int] = ...) -> None: ...

class Order(_message.Message):
    __slots__ = ("incarnation", "revision", "action", "lost_ranks", "restart_ranks", "replaced_nodes", "parameters", "timeout_seconds", "incident")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    LOST_RANKS_FIELD_NUMBER: _ClassVar[int]
    RESTART_RANKS_FIELD_NUMBER: _ClassVar[int]
    REPLACED_NODES_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    INCIDENT_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    revision: int
    action: Action
    lost_ranks: _containers.RepeatedScalarFieldContainer[int]
    restart_ranks: _containers.RepeatedScalarFieldContainer[int]
    replaced_nodes: _containers.RepeatedScalarFieldContainer[int]
    parameters: str
    timeout_seconds: int
    incident: int
    def __init__(self, incarnation: _Optional[int] = ..., revision: _Optional[int] = ..., action: _Optional[_Union[Action, str]] = ..., lost_ranks: _Optional[_Iterable[int]] = ..., restart_ranks: _Optional[_Iterable[int]] = ..., replaced_nodes: _Optional[_Iterable[int]] = ..., parameters: _Optional[str] = ..., timeout_seconds: _Optional[int] = ..., incident: _Optional[int] = ...) -> None: ...

class CoordinatorMessage(_message.Message):
    __slots__ = ("hello", "report")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    report: Report
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., report: _Optional[_Union[Report, _Mapping]] = ...) -> None: ...

class Report(_message.Message):
    __slots__ = ("sequence", "state", "facts", "milestones")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    MILESTONES_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    state: CoordinatorState
    facts: _containers.RepeatedCompositeFieldContainer[Fact]
    milestones: _containers.RepeatedCompositeFieldContainer[Milestone]
    def __init__(self, sequence: _Optional[int] = ..., state: _Optional[_Union[CoordinatorState, _Mapping]] = ..., facts: _Optional[_Iterable[_Union[Fact, _Mapping]]] = ..., milestones: _Optional[_Iterable[_Union[Milestone, _Mapping]]] = ...) -> None: ...

class CoordinatorState(_message.Message):
    __slots__ = ("incarnation", "order_revision", "conversation", "controller_ready", "controller_problem", "step", "attempt", "nodes", "standing_action", "checkpoint", "problems", "refused_inputs", "launched", "sign_age_nanoseconds", "strangers", "taking_over", "end", "pause_result", "step_times")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ORDER_REVISION_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_READY_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_PROBLEM_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    STANDING_ACTION_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_INPUTS_FIELD_NUMBER: _ClassVar[int]
    LAUNCHED_FIELD_NUMBER: _ClassVar[int]
    SIGN_AGE_NANOSECONDS_FIELD_NUMBER: _ClassVar[int]
    STRANGERS_FIELD_NUMBER: _ClassVar[int]
    TAKING_OVER_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    PAUSE_RESULT_FIELD_NUMBER: _ClassVar[int]
    STEP_TIMES_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    order_revision: int
    conversation: str
    controller_ready: bool
    controller_problem: str
    step: int
    attempt: int
    nodes: _containers.RepeatedCompositeFieldContainer[NodeState]
    standing_action: Action
    checkpoint: CheckpointState
    problems: _containers.RepeatedCompositeFieldContainer[Problem]
    refused_inputs: int
    launched: _containers.RepeatedScalarFieldContainer[str]
    sign_age_nanoseconds: int
    strangers: int
    taking_over: bool
    end: TrainingEnd
    pause_result: str
    step_times: StepTimes
    def __init__(self, incarnation: _Optional[int] = ..., order_revision: _Optional[int] = ..., conversation: _Optional[str] = ..., controller_ready: _Optional[bool] = ..., controller_problem: _Optional[str] = ..., step: _Optional[int] = ..., attempt: _Optional[int] = ..., nodes: _Optional[_Iterable[_Union[NodeState, _Mapping]]] = ..., standing_action: _Optional[_Union[Action, str]] = ..., checkpoint: _Optional[_Union[CheckpointState, _Mapping]] = ..., problems: _Optional[_Iterable[_Union[Problem, _Mapping]]] = ..., refused_inputs: _Optional[int] = ..., launched: _Optional[_Iterable[str]] = ..., sign_age_nanoseconds: _Optional[int] = ..., strangers: _Optional[int] = ..., taking_over: _Optional[bool] = ..., end: _Optional[_Union[TrainingEnd, str]] = ..., pause_result: _Optional[str] = ..., step_times: _Optional[_Union[StepTimes, _Mapping]] = ...) -> None: ...

class StepTimes(_message.Message):
    __slots__ = ("median_nanoseconds", "slow_nanoseconds")
    MEDIAN_NANOSECONDS_FIELD_NUMBER: _ClassVar[int]
    SLOW_NANOSECONDS_FIELD_NUMBER: _ClassVar[int]
    median_nanoseconds: int
    slow_nanoseconds: int
    def __init__(self, median_nanoseconds: _Optional[int] = ..., slow_nanoseconds: _Optional[int] = ...) -> None: ...

class Problem(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class CheckpointState(_message.Message):
    __slots__ = ("attempt", "name", "step", "tracked", "refused", "num_refused", "problem", "loaded_step")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    TRACKED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    NUM_REFUSED_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    LOADED_STEP_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    name: str
    step: int
    tracked: bool
    refused: _containers.RepeatedCompositeFieldContainer[RefusedCheckpoint]
    num_refused: int
    problem: str
    loaded_step: int
    def __init__(self, attempt: _Optional[int] = ..., name: _Optional[str] = ..., step: _Optional[int] = ..., tracked: _Optional[bool] = ..., refused: _Optional[_Iterable[_Union[RefusedCheckpoint, _Mapping]]] = ..., num_refused: _Optional[int] = ..., problem: _Optional[str] = ..., loaded_step: _Optional[int] = ...) -> None: ...

class RefusedCheckpoint(_message.Message):
    __slots__ = ("name", "reason", "detail")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    name: str
    reason: str
    detail: str
    def __init__(self, name: _Optional[str] = ..., reason: _Optional[str] = ..., detail: _Optional[str] = ...) -> None: ...

class NodeState(_message.Message):
    __slots__ = ("node_rank", "pod_uid", "connected", "launcher_ready", "ranks")
    NODE_RANK_FIELD_NUMBER: _ClassVar[int]
    POD_UID_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    LAUNCHER_READY_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    node_rank: int
    pod_uid: str
    connected: bool
    launcher_ready: bool
    ranks: _containers.RepeatedCompositeFieldContainer[RankState]
    def __init__(self, node_rank: _Optional[int] = ..., pod_uid: _Optional[str] = ..., connected: _Optional[bool] = ..., launcher_ready: _Optional[bool] = ..., ranks: _Optional[_Iterable[_Union[RankState, _Mapping]]] = ...) -> None: ...

class RankState(_message.Message):
    __slots__ = ("rank", "incarnation", "pid", "phase", "step", "start", "error_line")
    RANK_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    ERROR_LINE_FIELD_NUMBER: _ClassVar[int]
    rank: int
    incarnation: int
    pid: int
    phase: RankPhase
    step: int
    start: int
    error_line: str
    def __init__(self, rank: _Optional[int] = ..., incarnation: _Optional[int] = ..., pid: _Optional[int] = ..., phase: _Optional[_Union[RankPhase, str]] = ..., step: _Optional[int] = ..., start: _Optional[int] = ..., error_line: _Optional[str] = ...) -> None: ...

class Fact(_message.Message):
    __slots__ = ("id", "kind", "node_rank", "ranks", "incarnation", "exit_code", "step", "code", "message", "age_nanoseconds", "start", "load_failed", "unexplained")
    ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NODE_RANK_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    AGE_NANOSECONDS_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    LOAD_FAILED_FIELD_NUMBER: _ClassVar[int]
    UNEXPLAINED_FIELD_NUMBER: _ClassVar[int]
    id: str
    kind: FactKind
    node_rank: int
    ranks: _containers.RepeatedScalarFieldContainer[int]
    incarnation: int
    exit_code: int
    step: int
    code: str
    message: str
    age_nanoseconds: int
    start: int
    load_failed: bool
    unexplained: bool
    def __init__(self, id: _Optional[str] = ..., kind: _Optional[_Union[FactKind, str]] = ..., node_rank: _Optional[int] = ..., ranks: _Optional[_Iterable[int]] = ..., incarnation: _Optional[int] = ..., exit_code: _Optional[int] = ..., step: _Optional[int] = ..., code: _Optional[str] = ..., message: _Optional[str] = ..., age_nanoseconds: _Optional[int] = ..., start: _Optional[int] = ..., load_failed: _Optional[bool] = ..., unexplained: _Optional[bool] = ...) -> None: ...

class Milestone(_message.Message):
    __slots__ = ("kind", "incarnation", "age_nanoseconds", "step", "strategies", "result_code", "text", "strategy", "ranks", "duration_nanoseconds", "unverified", "store_kept")
    KIND_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    AGE_NANOSECONDS_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    STRATEGIES_FIELD_NUMBER: _ClassVar[int]
    RESULT_CODE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    DURATION_NANOSECONDS_FIELD_NUMBER: _ClassVar[int]
    UNVERIFIED_FIELD_NUMBER: _ClassVar[int]
    STORE_KEPT_FIELD_NUMBER: _ClassVar[int]
    kind: MilestoneKind
    incarnation: int
    age_nanoseconds: int
    step: int
    strategies: _containers.RepeatedScalarFieldContainer[str]
    result_code: int
    text: str
    strategy: str
    ranks: _containers.RepeatedScalarFieldContainer[int]
    duration_nanoseconds: int
    unverified: str
    store_kept: bool
    def __init__(self, kind: _Optional[_Union[MilestoneKind, str]] = ..., incarnation: _Optional[int] = ..., age_nanoseconds: _Optional[int] = ..., step: _Optional[int] = ..., strategies: _Optional[_Iterable[str]] = ..., result_code: _Optional[int] = ..., text: _Optional[str] = ..., strategy: _Optional[str] = ..., ranks: _Optional[_Iterable[int]] = ..., duration_nanoseconds: _Optional[int] = ..., unverified: _Optional[str] = ..., store_kept: _Optional[bool] = ...) -> None: ...

class CoordinatorToAgent(_message.Message):
    __slots__ = ("hello", "lease_grant", "node_order", "acknowledge", "controller", "rank_table")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    LEASE_GRANT_FIELD_NUMBER: _ClassVar[int]
    NODE_ORDER_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGE_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_FIELD_NUMBER: _ClassVar[int]
    RANK_TABLE_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    lease_grant: LeaseGrant
    node_order: NodeOrder
    acknowledge: Acknowledge
    controller: str
    rank_table: RankTable
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., lease_grant: _Optional[_Union[LeaseGrant, _Mapping]] = ..., node_order: _Optional[_Union[NodeOrder, _Mapping]] = ..., acknowledge: _Optional[_Union[Acknowledge, _Mapping]] = ..., controller: _Optional[str] = ..., rank_table: _Optional[_Union[RankTable, _Mapping]] = ...) -> None: ...

class LeaseGrant(_message.Message):
    __slots__ = ("heartbeat", "lease_milliseconds", "acknowledged")
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    LEASE_MILLISECONDS_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    heartbeat: int
    lease_milliseconds: int
    acknowledged: int
    def __init__(self, heartbeat: _Optional[int] = ..., lease_milliseconds: _Optional[int] = ..., acknowledged: _Optional[int] = ...) -> None: ...

class NodeOrder(_message.Message):
    __slots__ = ("revision", "controller_address", "ranks", "over", "log_rules", "checkpoint", "store_address", "controller", "stand_ins", "repaired", "store", "store_held", "store_kept", "store_wanted", "word", "word_for", "steps_ahead", "rank_table")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    OVER_FIELD_NUMBER: _ClassVar[int]
    LOG_RULES_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    STORE_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_FIELD_NUMBER: _ClassVar[int]
    STAND_INS_FIELD_NUMBER: _ClassVar[int]
    REPAIRED_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    STORE_HELD_FIELD_NUMBER: _ClassVar[int]
    STORE_KEPT_FIELD_NUMBER: _ClassVar[int]
    STORE_WANTED_FIELD_NUMBER: _ClassVar[int]
    WORD_FIELD_NUMBER: _ClassVar[int]
    WORD_FOR_FIELD_NUMBER: _ClassVar[int]
    STEPS_AHEAD_FIELD_NUMBER: _ClassVar[int]
    RANK_TABLE_FIELD_NUMBER: _ClassVar[int]
    revision: int
    controller_address: str
    ranks: _containers.RepeatedCompositeFieldContainer[RankOrder]
    over: bool
    log_rules: _containers.RepeatedCompositeFieldContainer[LogRule]
    checkpoint: CheckpointOrder
    store_address: str
    controller: str
    stand_ins: _containers.RepeatedScalarFieldContainer[int]
    repaired: bool
    store: str
    store_held: bool
    store_kept: bool
    store_wanted: str
    word: bytes
    word_for: _containers.RepeatedScalarFieldContainer[int]
    steps_ahead: int
    rank_table: str
    def __init__(self, revision: _Optional[int] = ..., controller_address: _Optional[str] = ..., ranks: _Optional[_Iterable[_Union[RankOrder, _Mapping]]] = ..., over: _Optional[bool] = ..., log_rules: _Optional[_Iterable[_Union[LogRule, _Mapping]]] = ..., checkpoint: _Optional[_Union[CheckpointOrder, _Mapping]] = ..., store_address: _Optional[str] = ..., controller: _Optional[str] = ..., stand_ins: _Optional[_Iterable[int]] = ..., repaired: _Optional[bool] = ..., store: _Optional[str] = ..., store_held: _Optional[bool] = ..., store_kept: _Optional[bool] = ..., store_wanted: _Optional[str] = ..., word: _Optional[bytes] = ..., word_for: _Optional[_Iterable[int]] = ..., steps_ahead: _Optional[int] = ..., rank_table: _Optional[str] = ...) -> None: ...

class CheckpointOrder(_message.Message):
    __slots__ = ("rules", "prepare_attempt", "look")
    RULES_FIELD_NUMBER: _ClassVar[int]
    PREPARE_ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    LOOK_FIELD_NUMBER: _ClassVar[int]
    rules: CheckpointRules
    prepare_attempt: int
    look: int
    def __init__(self, rules: _Optional[_Union[CheckpointRules, _Mapping]] = ..., prepare_attempt: _Optional[int] = ..., look: _Optional[int] = ...) -> None: ...

class RankOrder(_message.Message):
    __slots__ = ("rank", "incarnation", "run", "admitted", "environment", "start", "stacks")
    class EnvironmentEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    RANK_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    ADMITTED_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    STACKS_FIELD_NUMBER: _ClassVar[int]
    rank: int
    incarnation: int
    run: bool
    admitted: bool
    environment: _containers.ScalarMap[str, str]
    start: int
    stacks: int
    def __init__(self, rank: _Optional[int] = ..., incarnation: _Optional[int] = ..., run: _Optional[bool] = ..., admitted: _Optional[bool] = ..., environment: _Optional[_Mapping[str, str]] = ..., start: _Optional[int] = ..., stacks: _Optional[int] = ...) -> None: ...

class AgentToCoordinator(_message.Message):
    __slots__ = ("hello", "heartbeat", "report", "store", "controller")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    heartbeat: Heartbeat
    report: AgentReport
    store: StoreContent
    controller: str
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., report: _Optional[_Union[AgentReport, _Mapping]] = ..., store: _Optional[_Union[StoreContent, _Mapping]] = ..., controller: _Optional[str] = ...) -> None: ...

class StoreContent(_message.Message):
    __slots__ = ("wanted", "dialect", "problem", "entries", "last")
    WANTED_FIELD_NUMBER: _ClassVar[int]
    DIALECT_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    wanted: str
    dialect: str
    problem: str
    entries: _containers.RepeatedCompositeFieldContainer[StoreEntry]
    last: bool
    def __init__(self, wanted: _Optional[str] = ..., dialect: _Optional[str] = ..., problem: _Optional[str] = ..., entries: _Optional[_Iterable[_Union[StoreEntry, _Mapping]]] = ..., last: _Optional[bool] = ...) -> None: ...

class StoreEntry(_message.Message):
    __slots__ = ("key", "value", "deleted", "counted", "age_nanoseconds")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    COUNTED_FIELD_NUMBER: _ClassVar[int]
    AGE_NANOSECONDS_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    deleted: bool
    counted: bool
    age_nanoseconds: int
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., deleted: _Optional[bool] = ..., counted: _Optional[bool] = ..., age_nanoseconds: _Optional[int] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("number",)
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    number: int
    def __init__(self, number: _Optional[int] = ...) -> None: ...

class AgentReport(_message.Message):
    __slots__ = ("sequence", "launcher_ready", "ranks", "facts", "steps", "script_ended", "sees_checkpoints", "checkpoint", "problems", "heartbeat", "launched", "sign_age_nanoseconds", "strangers", "last_step", "environment", "gate")
    class EnvironmentEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAUNCHER_READY_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    SCRIPT_ENDED_FIELD_NUMBER: _ClassVar[int]
    SEES_CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    LAUNCHED_FIELD_NUMBER: _ClassVar[int]
    SIGN_AGE_NANOSECONDS_FIELD_NUMBER: _ClassVar[int]
    STRANGERS_FIELD_NUMBER: _ClassVar[int]
    LAST_STEP_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    GATE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    launcher_ready: bool
    ranks: _containers.RepeatedCompositeFieldContainer[RankState]
    facts: _containers.RepeatedCompositeFieldContainer[Fact]
    steps: _containers.RepeatedCompositeFieldContainer[StepFinished]
    script_ended: bool
    sees_checkpoints: bool
    checkpoint: CheckpointState
    problems: _containers.RepeatedCompositeFieldContainer[Problem]
    heartbeat: int
    launched: _containers.RepeatedScalarFieldContainer[str]
    sign_age_nanoseconds: int
    strangers: int
    last_step: int
    environment: _containers.ScalarMap[str, str]
    gate: GateState
    def __init__(self, sequence: _Optional[int] = ..., launcher_ready: _Optional[bool] = ..., ranks: _Optional[_Iterable[_Union[RankState, _Mapping]]] = ..., facts: _Optional[_Iterable[_Union[Fact, _Mapping]]] = ..., steps: _Optional[_Iterable[_Union[StepFinished, _Mapping]]] = ..., script_ended: _Optional[bool] = ..., sees_checkpoints: _Optional[bool] = ..., checkpoint: _Optional[_Union[CheckpointState, _Mapping]] = ..., problems: _Optional[_Iterable[_Union[Problem, _Mapping]]] = ..., heartbeat: _Optional[int] = ..., launched: _Optional[_Iterable[str]] = ..., sign_age_nanoseconds: _Optional[int] = ..., strangers: _Optional[int] = ..., last_step: _Optional[int] = ..., environment: _Optional[_Mapping[str, str]] = ..., gate: _Optional[_Union[GateState, _Mapping]] = ...) -> None: ...

class GateState(_message.Message):
    __slots__ = ("controller", "registered", "serial", "counter", "told", "keeps_store", "action", "word", "unreadable")
    CONTROLLER_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    COUNTER_FIELD_NUMBER: _ClassVar[int]
    TOLD_FIELD_NUMBER: _ClassVar[int]
    KEEPS_STORE_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    WORD_FIELD_NUMBER: _ClassVar[int]
    UNREADABLE_FIELD_NUMBER: _ClassVar[int]
    controller: str
    registered: _containers.RepeatedScalarFieldContainer[int]
    serial: int
    counter: int
    told: _containers.RepeatedCompositeFieldContainer[RankActions]
    keeps_store: bool
    action: int
    word: bytes
    unreadable: bool
    def __init__(self, controller: _Optional[str] = ..., registered: _Optional[_Iterable[int]] = ..., serial: _Optional[int] = ..., counter: _Optional[int] = ..., told: _Optional[_Iterable[_Union[RankActions, _Mapping]]] = ..., keeps_store: _Optional[bool] = ..., action: _Optional[int] = ..., word: _Optional[bytes] = ..., unreadable: _Optional[bool] = ...) -> None: ...

class RankActions(_message.Message):
    __slots__ = ("rank", "answered", "busy", "repaired", "serial")
    RANK_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_FIELD_NUMBER: _ClassVar[int]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    REPAIRED_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    rank: int
    answered: _containers.RepeatedScalarFieldContainer[int]
    busy: bool
    repaired: bool
    serial: int
    def __init__(self, rank: _Optional[int] = ..., answered: _Optional[_Iterable[int]] = ..., busy: _Optional[bool] = ..., repaired: _Optional[bool] = ..., serial: _Optional[int] = ...) -> None: ...

class StepFinished(_message.Message):
    __slots__ = ("rank", "step", "age_nanoseconds", "heartbeat")
    RANK_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    AGE_NANOSECONDS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    rank: int
    step: int
    age_nanoseconds: int
    heartbeat: bool
    def __init__(self, rank: _Optional[int] = ..., step: _Optional[int] = ..., age_nanoseconds: _Optional[int] = ..., heartbeat: _Optional[bool] = ...) -> None: ...
