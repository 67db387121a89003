from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Answer(_message.Message):
    __slots__ = ("code", "info")
    CODE_FIELD_NUMBER: _ClassVar[int]
    INFO_FIELD_NUMBER: _ClassVar[int]
    code: int
    info: str
    def __init__(self, code: _Optional[int] = ..., info: _Optional[str] = ...) -> None: ...

class Client(_message.Message):
    __slots__ = ("job", "role")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    job: str
    role: str
    def __init__(self, job: _Optional[str] = ..., role: _Optional[str] = ...) -> None: ...

class FaultyRank(_message.Message):
    __slots__ = ("rank", "kind")
    RANK_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    rank: str
    kind: str
    def __init__(self, rank: _Optional[str] = ..., kind: _Optional[str] = ...) -> None: ...

class ManageSignal(_message.Message):
    __slots__ = ("uuid", "job", "type", "actions", "ranks", "strategy", "timeout", "nodes", "parameters")
    UUID_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    uuid: str
    job: str
    type: str
    actions: _containers.RepeatedScalarFieldContainer[str]
    ranks: _containers.RepeatedCompositeFieldContainer[FaultyRank]
    strategy: str
    timeout: int
    nodes: _containers.RepeatedScalarFieldContainer[str]
    parameters: str
    def __init__(self, uuid: _Optional[str] = ..., job: _Optional[str] = ..., type: _Optional[str] = ..., actions: _Optional[_Iterable[str]] = ..., ranks: _Optional[_Iterable[_Union[FaultyRank, _Mapping]]] = ..., strategy: _Optional[str] = ..., timeout: _Optional[int] = ..., nodes: _Optional[_Iterable[str]] = ..., parameters: _Optional[str] = ...) -> None: ...

class StopComplete(_message.Message):
    __slots__ = ("job", "status", "ranks")
    JOB_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    job: str
    status: Answer
    ranks: _containers.RepeatedCompositeFieldContainer[FaultyRank]
    def __init__(self, job: _Optional[str] = ..., status: _Optional[_Union[Answer, _Mapping]] = ..., ranks: _Optional[_Iterable[_Union[FaultyRank, _Mapping]]] = ...) -> None: ...

class Strategies(_message.Message):
    __slots__ = ("job", "ranks", "strategies")
    JOB_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    STRATEGIES_FIELD_NUMBER: _ClassVar[int]
    job: str
    ranks: _containers.RepeatedCompositeFieldContainer[FaultyRank]
    strategies: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, job: _Optional[str] = ..., ranks: _Optional[_Iterable[_Union[FaultyRank, _Mapping]]] = ..., strategies: _Optional[_Iterable[str]] = ...) -> None: ...

class Result(_message.Message):
    __slots__ = ("job", "status", "strategy", "ranks")
    JOB_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    job: str
    status: Answer
    strategy: str
    ranks: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, job: _Optional[str] = ..., status: _Optional[_Union[Answer, _Mapping]] = ..., strategy: _Optional[str] = ..., ranks: _Optional[_Iterable[str]] = ...) -> None: ...

class ProcessFault(_message.Message):
    __slots__ = ("job", "ranks")
    JOB_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    job: str
    ranks: _containers.RepeatedCompositeFieldContainer[FaultyRank]
    def __init__(self, job: _Optional[str] = ..., ranks: _Optional[_Iterable[_Union[FaultyRank, _Mapping]]] = ...) -> None: ...

class RailSwitch(_message.Message):
    __slots__ = ("ranks", "borrowed", "job")
    RANKS_FIELD_NUMBER: _ClassVar[int]
    BORROWED_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    ranks: _containers.RepeatedScalarFieldContainer[str]
    borrowed: _containers.RepeatedScalarFieldContainer[bool]
    job: str
    def __init__(self, ranks: _Optional[_Iterable[str]] = ..., borrowed: _Optional[_Iterable[bool]] = ..., job: _Optional[str] = ...) -> None: ...

class RailResult(_message.Message):
    __slots__ = ("job", "done")
    JOB_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    job: str
    done: bool
    def __init__(self, job: _Optional[str] = ..., done: _Optional[bool] = ...) -> None: ...

class StressOperations(_message.Message):
    __slots__ = ("operations",)
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    operations: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, operations: _Optional[_Iterable[int]] = ...) -> None: ...

class StressTest(_message.Message):
    __slots__ = ("ranks", "job")
    class RanksEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: StressOperations
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[StressOperations, _Mapping]] = ...) -> None: ...
    RANKS_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    ranks: _containers.MessageMap[str, StressOperations]
    job: str
    def __init__(self, ranks: _Optional[_Mapping[str, StressOperations]] = ..., job: _Optional[str] = ...) -> None: ...

class StressCode(_message.Message):
    __slots__ = ("code", "result")
    CODE_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    code: str
    result: str
    def __init__(self, code: _Optional[str] = ..., result: _Optional[str] = ...) -> None: ...

class StressRank(_message.Message):
    __slots__ = ("operations",)
    class OperationsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: StressCode
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[StressCode, _Mapping]] = ...) -> None: ...
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    operations: _containers.MessageMap[str, StressCode]
    def __init__(self, operations: _Optional[_Mapping[str, StressCode]] = ...) -> None: ...

class StressResult(_message.Message):
    __slots__ = ("job", "ranks")
    class RanksEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: StressRank
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[StressRank, _Mapping]] = ...) -> None: ...
    JOB_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    job: str
    ranks: _containers.MessageMap[str, StressRank]
    def __init__(self, job: _Optional[str] = ..., ranks: _Optional[_Mapping[str, StressRank]] = ...) -> None: ...
