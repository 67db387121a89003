"""Damaged objects for the parsers of fault sources, by the hundred thousand, guided by coverage.

    python -m e2e.fuzz --inputs 100000 [--parser device] [--seed 1] [--jobs 2]

Begins with objects of real shape, damages them a little at a time, and keeps for further damage what reached a line
that nothing had reached before. Every input must be answered: an exception, an answer that grows beyond its object, or
one that takes long, ends the run with the input in a file. A wrong CheckCode is mended in half of the inputs, so that
the inside of an object is reached.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any, Final

from google.protobuf import json_format

from hajob.api.base import JsonValue
from hajob.domain.hardware import Level
from hajob.faults.rules import settings
from hajob.plan.state import JobState
from hajob.protocol import sidecar_pb2 as wire
from hajob.sources import observe, pod, registry
from hajob.sources.check_code import check_codes
from hajob.sources.reading import SickCondition, Terms

Object = dict[str, Any]

FINDINGS: Final = Path("fuzz-findings")
"""Where inputs are left that a parser did not answer; git ignores it."""
NOW_MS: Final = 1_767_225_900_000
TRACED: Final = 20
"""One of so many inputs is looked at line by line: tracing makes it ten times slower."""
SLOW_SECONDS: Final = 2.0
SERIAL: Final = "2102314ABC"
_PARSERS: Final = "hajob/sources/"
STRANGE: Final[tuple[JsonValue, ...]] = (
    None,
    True,
    -1,
    0,
    1 << 70,
    1e308,
    "",
    " ",
    "Ascend910-3",
    "\u0000",
    "\ud800",
    "9" * 400,
    [],
    {},
    [[]],
    {"": {}},
    ["x"],
    "SeparateNPU",
    "NotHandle",
    1_767_225_600_000,
    "2026-01-01T00:00:00Z",
    "9999-99-99",
    "{",
    "[{}]",
)


def _fault(device: str = "Ascend910-3", level: str = "RestartNPU", code: str = "40F84E00") -> Object:
    times = {code: {"fault_time": NOW_MS - 1000, "fault_level": level}}
    head = {"fault_type": "CardUnhealthy", "npu_name": device, "fault_level": level, "fault_code": code}
    return {**head, "large_model_fault_level": level, "fault_time_and_level_map": times}


def seeds() -> dict[str, list[Object]]:
    """For each parser objects as their writers write them; texts of JSON are written out, to be damaged inside."""
    devices = {"huawei.com/Ascend910": "Ascend910-0", "huawei.com/Ascend910-Fault": [_fault()]}
    devices["huawei.com/Ascend910-Unhealthy"] = "Ascend910-3,Ascend910-4"
    device = {"DeviceInfo": {"DeviceList": devices, "UpdateTime": 1_767_225_601}, "CheckCode": ""}
    upgrade = {"Ascend910-1": [{"upgrade_time": NOW_MS, "fault_code": "c", "fault_level": "SeparateNPU"}]}
    event = {"AssembledFaultCode": "[0x00f1ff06,155910,na,na]", "SwitchChipId": 0, "SwitchPortId": 1, "Severity": 2}
    switch = {"FaultCode": [event], "FaultLevel": "SubHealth", "FaultTimeAndLevelMap": {}}
    hardware = {"DeviceType": "CPU", "DeviceId": 0, "FaultCode": ["2C000031"], "FaultLevel": "SeparateFault"}
    node = {"NodeInfo": {"FaultDevList": [hardware], "NodeStatus": "UnHealthy"}, "CheckCode": ""}
    place = {"nodeName": "node-1", "deviceIds": [0, 1]}
    machine = {"nodeSN": SERIAL, "deviceIds": [2]}
    public = {"faultId": "fault-0001", "faultType": "NPU", "faultCode": "220001001", "faultTime": NOW_MS - 1000}
    public |= {"assertion": "occur", "faultLocation": {"a": "b"}, "influence": [place, machine], "description": "text"}
    over = {**public, "faultId": "fault-0002", "assertion": "recover"}
    repeated = {**_fault(code="220001001"), "fault_type": "PublicFault", "fault_level": "ManuallySeparateNPU"}
    gathered = {"DeviceList": {"huawei.com/Ascend910-Fault": [repeated]}, "UpdateTime": 1_767_225_601}
    message = {"id": "message-1", "timestamp": NOW_MS, "version": "1.0", "resource": "CCAE", "faults": [public, over]}
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z", "message": "m"}
    taint = {"key": "a", "value": "b", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}
    lost = {"type": "NPULost", "status": "True", "reason": "Found"}
    return {
        "device": [_map("mindx-dl-deviceinfo-node-1", DeviceInfoCfg=device, ManuallySeparateNPU="Ascend910-1",
                        UpgradeFaultReason=upgrade)],
        "switch": [_map("mindx-dl-deviceinfo-node-1", DeviceInfoCfg=device, SwitchInfoCfg=switch)],
        "node info": [_map("mindx-dl-nodeinfo-node-1", NodeInfo=node, updateTime="2026-01-01T00:00:00Z")],
        "public": [_map("any", "mc-consumer-publicfault", PublicFault=message)],
        "aggregated": [
            _aggregated("cluster-info-device-0", {"mindx-dl-deviceinfo-n": device["DeviceInfo"]}),
            _aggregated("cluster-info-device-1", {"mindx-dl-deviceinfo-n": gathered}),
            _aggregated("cluster-info-switch-0", {"mindx-dl-switchinfo-n": switch}),
            _aggregated("cluster-info-node-cm", {"mindx-dl-nodeinfo-n": node["NodeInfo"]}),
        ],
        "node": [{"kind": "Node", "metadata": {"name": "n"}, "spec": {"unschedulable": True, "taints": [taint]},
                  "status": {"conditions": [ready, lost]}}],
        "lease": [{"kind": "Lease", "metadata": {"name": "n", "namespace": "kube-node-lease"},
                   "spec": {"renewTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": 40}}],
        "pod": [_pod()],
        "report": [_report()],
        "settings": [_map("hajob-faults", codes="{\"a\": RestartNPU}", breaker="{sharePercent: 20}", senders="a,b",
                          conditions="NPULost: SeparateNPU")],
    }  # fmt: skip


def _pod() -> Object:
    """A rank pod with everything that is read of one."""
    ended = {"exitCode": 137, "reason": "OOMKilled", "message": "m"}
    field = {"key": "metadata.name", "operator": "NotIn", "values": ["node-2"]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    labels = {
        "training.hajob.io/role": "rank",
        "training.hajob.io/node-rank": "1",
        "training.hajob.io/incarnation": "1",
    }
    owner = {"apiVersion": "training.hajob.io/v1alpha1", "kind": "HATrainingJob", "uid": "u", "controller": True}
    chips = {"huawei.com/AscendReal": "Ascend910-0,Ascend910-1", "huawei.com/Ascend910": "Ascend910-1"}
    chips["ascend.kubectl.kubernetes.io/ascend-910-configuration"] = json.dumps(
        {"devices": [{"device_id": "0"}, {"device_id": "1"}]}
    )
    states = [{"name": "trainer", "state": {"terminated": ended}}, {"name": "x", "state": {"waiting": {"reason": "y"}}}]
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
    taken = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "m"}
    containers = [{"name": "trainer", "resources": {"limits": {"huawei.com/Ascend910": "2"}}}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return {
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": labels, "ownerReferences": [owner],
                     "annotations": chips},
        "spec": {"containers": containers, "affinity": affinity, "schedulingGates": [{"name": "g"}]},
        "status": {"phase": "Failed", "reason": "Evicted", "podIP": "10.0.0.1", "containerStatuses": states,
                   "initContainerStatuses": states[1:], "conditions": [scheduled, taken]},
    }  # fmt: skip


def _report() -> Object:
    """A coordinator's report, as protobuf writes it in JSON."""
    fact = {"id": "a", "kind": "PROCESS_EXITED", "nodeRank": 1, "ranks": [2], "incarnation": "1", "exitCode": -9}
    fact |= {"step": "7", "code": "ContainerKilled", "message": "m", "ageNanoseconds": "5", "unexplained": True}
    milestone = {"kind": "STOPPED", "incarnation": "1", "ageNanoseconds": "5", "step": "7", "ranks": [2]}
    node = {
        "nodeRank": 1,
        "podUid": "u",
        "connected": True,
        "ranks": [{"rank": 2, "step": "7", "errorLine": "UCE ERROR"}],
    }
    state = {"incarnation": "1", "attempt": 1, "controllerReady": True, "step": "7", "nodes": [node]}
    state |= {"checkpoint": {"step": "5", "tracked": True}, "problems": [{"code": "ImageUnusable", "message": "m"}]}
    return {"sequence": "1", "state": state, "facts": [fact], "milestones": [milestone]}


def _map(name: str, label: str = "mx-consumer-cim", **data: JsonValue) -> Object:
    return {"kind": "ConfigMap", "metadata": {"name": name, "labels": {label: "true"}}, "data": data}


def _aggregated(name: str, content: Object) -> Object:
    """ClusterD's maps hold one text under their own name."""
    return {**_map(name), "data": {name: content}}


def _places(value: JsonValue) -> Iterator[tuple[Any, Any]]:
    """Every container with a key or index in it."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(pairs):
        yield value, key
        yield from _places(inner)


class Fuzzer:
    """Inputs for one parser."""

    def __init__(self, seeds: list[Object], read: Callable[[Object], Sequence[int]], random_: random.Random) -> None:
        self._corpus, self._read, self._random = list(seeds), read, random_
        self._lines: set[tuple[str, int]] = set()

    @property
    def covered(self) -> int:
        """Lines of parsers that were reached."""
        return len(self._lines)

    def run(self, inputs: int) -> None:
        """So many inputs; raises whatever a parser raises, with the input as a note."""
        for number in range(inputs):
            tree = self.damaged()
            raw = self._written(tree)
            begin = time.process_time()
            try:
                counts = self._traced(raw, tree) if number % TRACED == 0 else self._read(raw)
            except Exception as error:
                error.add_note(json.dumps(raw, default=repr))
                raise
            size = len(json.dumps(raw, default=repr))
            if max(counts) > size or time.process_time() - begin > SLOW_SECONDS:
                raise AssertionError(f"{counts} answers, {time.process_time() - begin:.1f} s: {raw!r}"[:4000])

    def damaged(self) -> Object:
        """Return an object of the corpus, with some of its parts replaced, removed or repeated."""
        choose = self._random
        tree: Object = json.loads(json.dumps(choose.choice(self._corpus)))
        for _ in range(choose.choice((1, 1, 1, 2, 4))):
            places = list(_places(tree))
            if not places:
                break
            container, key = choose.choice(places)
            self._damage(container, key, [inner for box, at in places for inner in [box[at]]])
        return tree

    def _damage(self, container: JsonValue, key: JsonValue, others: list[Any]) -> None:
        choose, value = self._random, container[key]
        how = choose.randrange(5)
        if how == 0:
            container[key] = json.loads(json.dumps(choose.choice(STRANGE)))  # not the very list: it may be damaged, too
        elif how == 1:
            container[key] = json.loads(json.dumps(choose.choice(others)))
        elif how == 2 and isinstance(value, str) and value:
            at = choose.randrange(len(value))
            container[key] = value[:at] + choose.choice(("", "\u0000", "-", "é", value)) + value[at + 1 :]
        elif how == 3 and isinstance(value, list):
            container[key] = value * choose.choice((0, 2, 30))
        elif how == 4 and isinstance(container, dict):
            del container[key]

    def _written(self, tree: Object) -> Object:
        """As the object would be: texts of JSON, sealed in half of the cases, cut off now and then."""
        data = tree.get("data")
        if not isinstance(data, dict):
            return tree
        written = {key: self._text(value) for key, value in data.items()}
        return {**tree, "data": written}

    def _text(self, value: JsonValue) -> JsonValue:
        if not isinstance(value, dict):
            return value
        inner = dict(value)
        for name in ("DeviceInfo", "NodeInfo"):
            if isinstance(inner.get(name), dict):
                inner[name] = {key: self._listed(part) for key, part in inner[name].items()}
                if self._random.random() < 0.5:
                    inner["CheckCode"] = check_codes(_sorted(inner[name]))[0]
        if isinstance(inner.get("FaultCode"), list):
            inner["FaultCode"] = [json.dumps(one) if isinstance(one, dict) else one for one in inner["FaultCode"]]
        text = json.dumps(inner)
        return text[: self._random.randrange(len(text))] if self._random.random() < 0.02 else text

    def _listed(self, part: JsonValue) -> JsonValue:
        """The fault list is a text of its own inside."""
        if not isinstance(part, dict):
            return part
        return {key: json.dumps(one) if isinstance(one, list) else one for key, one in part.items()}

    def _traced(self, raw: Object, tree: Object) -> Sequence[int]:
        fresh: set[tuple[str, int]] = set()

        def line(frame: FrameType, event: str, _: object) -> JsonValue:
            if event == "line":
                fresh.add((frame.f_code.co_filename, frame.f_lineno))
            return line

        def call(frame: FrameType, _event: str, _: object) -> JsonValue:
            return line if _PARSERS in frame.f_code.co_filename else None

        sys.settrace(call)
        try:
            counts = self._read(raw)
        finally:
            sys.settrace(None)
        if fresh - self._lines:
            self._lines |= fresh
            self._corpus.append(tree)
        return counts


def _sorted(inner: Object) -> Object:
    devices = inner.get("DeviceList")
    return {**inner, "DeviceList": dict(sorted(devices.items()))} if isinstance(devices, dict) else inner


def _read(raw: Object) -> Sequence[int]:
    terms = Terms(NOW_MS, conditions={"NPULost": SickCondition(Level.SEPARATE)}, serials={SERIAL: "node-2"})
    found = registry.read_object(raw, terms)
    return len(found.facts), len(found.rejected), len(found.over)


def _read_pod(raw: Object) -> Sequence[int]:
    view = pod.pod_view_of(raw)
    found = [*pod.facts_of_pod(view, NOW_MS), pod.fact_of_lost_pod(view, NOW_MS), *pod.facts_of_taken_pod(view, NOW_MS)]
    return len(found), len(view.chips)


def _read_report(raw: Object) -> Sequence[int]:
    """What protobuf itself refuses never reaches the parser."""
    try:
        told = json_format.ParseDict(raw, wire.Report(), ignore_unknown_fields=True)
    except (json_format.ParseError, SystemError, UnicodeError):  # protobuf's own: half a surrogate is a SystemError
        return (0,)
    pods = {1: pod.pod_view_of(_pod())}
    found = observe.events_of_report(told, pods, NOW_MS)
    heard = observe.Heard()
    seen = list(observe.events_of_coordinator(JobState(), heard, heard.after_report(told.state), 4))
    return len(found.observed), len(found.refused), len(seen)


def _read_settings(raw: Object) -> Sequence[int]:
    found, reading = settings.parse_settings(raw, NOW_MS)
    return len(found.codes), len(reading.rejected)


_READERS: Final = {"settings": _read_settings, "pod": _read_pod, "report": _read_report}


def fuzz(name: str, inputs: int, seed: int) -> tuple[bool, str]:
    """Whether one parser answered so many inputs, and what to say of it; where it did not, the input is in a file."""
    begin = time.monotonic()
    fuzzer = Fuzzer(seeds()[name], _READERS.get(name, _read), random.Random(seed))
    inputs = inputs if name != "settings" else max(inputs // 10, 1)  # YAML is slow
    try:
        fuzzer.run(inputs)
    except Exception as error:
        FINDINGS.mkdir(exist_ok=True)
        target = FINDINGS / f"{name.replace(' ', '-')}-{seed}.txt"
        target.write_text("\n".join([repr(error), *getattr(error, "__notes__", [])]), encoding="utf-8")
        return False, f"{name}: {error!r}; the input is in {target}, seed {seed}"
    spent = time.monotonic() - begin
    return True, f"{name}: {inputs} inputs in {spent:.0f} s, {fuzzer.covered} lines reached, seed {seed}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz every parser, or one; 1 and a file with the input where one fails."""
    parser = argparse.ArgumentParser(prog="e2e.fuzz", description="Damaged objects for the parsers of fault sources.")
    parser.add_argument("--inputs", type=int, default=100_000, help="for each parser (100,000)")
    parser.add_argument("--seed", type=int, default=0, help="of the damage; 0: another one each time")
    parser.add_argument("--parser", choices=list(seeds()), help="only this one")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="parsers at a time (as many as processors)"
    )
    options = parser.parse_args(arguments)
    seed = options.seed or random.SystemRandom().randrange(1, 1 << 31)
    names = [options.parser] if options.parser else list(seeds())
    jobs = min(options.jobs, len(names))
    failed = 0
    with ProcessPoolExecutor(jobs) as pool:
        each = map if jobs == 1 else pool.map
        for answered, told in each(fuzz, names, [options.inputs] * len(names), [seed] * len(names)):
            failed += not answered
            print(told, file=sys.stdout if answered else sys.stderr, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
