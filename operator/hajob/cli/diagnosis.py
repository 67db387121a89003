"""What `kubectl hajob doctor` concludes from what it has gathered: pure, one function for each thing that may be wrong.

The objects that tell of faults are read by the same parsers as the operator's, so that this works without one.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.conditions import ConditionType, Reason, reason_of
from hajob.api.crd_difference import CRD_NAMES, compare_crd
from hajob.domain.hardware import ClusterFact
from hajob.domain.text import counted_noun, first_of_list, last_lines
from hajob.faults.rules import settings as fault_settings
from hajob.plan.protection import remedy_of_precondition
from hajob.sources import device_info, node, pod, registry
from hajob.sources.node import nodes_by_serial
from hajob.sources.reading import (
    Reading,
    Rejection,
    Terms,
    data_of_config_map,
    items,
    mapping,
    name_of_object,
    parse_whole_number,
    text,
)

LEADS_SECONDS: Final = 15
"""A leader renews its Lease every second; clocks may differ a little."""
# A screen of them; a line below says how many there are in all.
MOST_SHOWN: Final = 20
_CHIPS: Final = "huawei.com/"
_ENDED: Final = frozenset({ConditionType.COMPLETE, ConditionType.FAILED})


class Grade(StrEnum):
    """How much a finding matters."""

    FINE = "ok"
    NOTE = "note"
    UNKNOWN = "unknown"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: what about, what is so, and what to do."""

    grade: Grade
    about: str
    message: str
    do: str = ""


class Look(StrEnum):
    """What is looked at in a cluster, by its name in a finding."""

    CRDS = "CRDs"
    LEASE = "the operator's Lease"
    REPORT = "the leader's report"
    SETTINGS = "the admin's settings"
    SOURCES = "faults of nodes and chips"
    QUARANTINES = "quarantines"
    JOBS = "jobs"
    WORKLOADS = "components beside Hajob"
    PODS = "the job's pods"
    SCHEDULERS = "schedulers"


@dataclass(frozen=True, slots=True)
class Unread:
    """Why something could not be looked at: the right that the asker lacks, or, without one, what went wrong."""

    right: str = ""
    problem: str = ""


@dataclass(slots=True)
class Gathered:
    """The objects of a cluster, raw.

    Attributes:
        now_ms: milliseconds since 1970.
        crds: by name; None where the CRD is not installed.
        lease: of the leader; None where nobody has ever led.
        report: the leader's own /faults; None where it could not be asked.
        settings: the ConfigMap of the admin's settings, if there is one.
        objects: everything that may tell of faults: ConfigMaps, Nodes, Leases of nodes.
        quarantines, jobs: lists.
        looks: everything that was looked at.
        unread: what of it could not be read, so that nothing is known about it.
    """

    now_ms: int
    crds: dict[str, Json | None] = field(default_factory=dict)
    lease: Json | None = None
    report: Json | None = None
    settings: Json | None = None
    objects: list[Json] = field(default_factory=list)
    quarantines: list[Json] = field(default_factory=list)
    jobs: list[Json] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    unread: dict[Look, list[Unread]] = field(default_factory=dict)


@dataclass(slots=True)
class FaultsRead:
    """What the operator's parsers read from the objects.

    Attributes:
        seen: number of objects of each source.
        facts: that stand, each once.
        rejected: object and rejection.
        silent: objects whose writers have not written for too long, by their own clocks.
    """

    seen: Counter[str] = field(default_factory=Counter)
    facts: dict[str, ClusterFact] = field(default_factory=dict)
    rejected: list[tuple[str, Rejection]] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)

    @property
    def harmful_faults(self) -> list[ClusterFact]:
        """Those that lead to something, or keep pods away."""
        return [fact for fact in self.facts.values() if fact.harms or fact.isolates]


def read_all_faults(gathered: Gathered) -> FaultsRead:
    """Read every object, under the admin's settings."""
    serials = nodes_by_serial(gathered.objects)
    found, terms = FaultsRead(), Terms(gathered.now_ms, serials=serials)
    if gathered.settings is not None:
        admins, reading = fault_settings.parse_settings(gathered.settings, gathered.now_ms)
        terms = admins.parsing_terms(gathered.now_ms, serials)
        found.rejected += [(f"ConfigMap {fault_settings.NAME}", one) for one in reading.rejected]
    for raw in gathered.objects:
        rows = [row for row in registry.SOURCES if row.takes_object(raw)]
        found.seen.update(
            row.name for row in rows if row.name != "switch info" or data_of_config_map(raw, "SwitchInfoCfg")
        )
        title, reading = f"{raw.get('kind')} {name_of_object(raw)}", registry.read_object(raw, terms)
        found.facts.update({fact.id: fact for fact in reading.facts})
        found.rejected += [(title, one) for one in reading.rejected]
        if any(registry.is_source_silent(row, reading.updated_ms, gathered.now_ms) for row in rows):
            found.silent.append(_describe_silence(title, reading, gathered.now_ms))
    return found


def _describe_silence(title: str, reading: Reading, now_ms: int) -> str:
    return f"{title}: last written {(now_ms - (reading.updated_ms or 0)) // 60_000} min ago by its own clock"


def findings_of_cluster(gathered: Gathered) -> Iterator[Finding]:
    """Yield the findings about a cluster."""
    faults = read_all_faults(gathered)
    yield from findings_of_unread(gathered)
    yield from _findings_of_crds(gathered)
    yield from findings_of_operator(gathered)
    yield from _findings_of_report(gathered)
    yield from _findings_of_sources(gathered, faults)
    yield from _findings_of_rejected(gathered, faults)
    yield from _findings_of_standing(gathered, faults)
    yield from _findings_of_quarantines(gathered)
    yield from _findings_of_jobs(gathered)


def findings_of_unread(gathered: Gathered) -> Iterator[Finding]:
    """Yield what could not be looked at: one finding for missing rights, one for each thing that went wrong."""
    lacking = {look: [one.right for one in found if one.right] for look, found in gathered.unread.items()}
    if rights := list(dict.fromkeys(right for found in lacking.values() for right in found)):
        looks = [look for look, found in lacking.items() if found]
        message = (
            f"more rights are needed for {len(looks)} of {len(gathered.looks)} checks: {', '.join(looks)}; "
            f"what is missing is to {'; to '.join(rights)}"
        )
        yield Finding(Grade.UNKNOWN, "rights", message, "ask an admin for these rights, or to run this command")
    for look, found in gathered.unread.items():
        for one in found:
            if one.problem:
                yield Finding(Grade.UNKNOWN, look, one.problem, _ASK_ITSELF if look is Look.REPORT else "try again")


_ASK_ITSELF: Final = "kubectl -n hajob-system port-forward, /faults (docs/admin/faults.md)"


def _findings_of_crds(gathered: Gathered) -> Iterator[Finding]:
    do = "kubectl apply --server-side -f crds/ of the operator's version"
    wrong = False
    for name in CRD_NAMES:
        if name not in gathered.crds:
            continue
        crd = gathered.crds[name]
        told = compare_crd(crd) if crd is not None else None
        if told is None:
            wrong = True
            yield Finding(Grade.PROBLEM, "CRD", f"{name} is not installed", do)
        elif told.lacking:
            wrong = True
            yield Finding(
                Grade.PROBLEM, "CRD", f"{name} is older than this command: it lacks {first_of_list(told.lacking)}", do
            )
        elif told.unknown:
            wrong = True
            message = f"{name} is newer than this command, which does not know {first_of_list(told.unknown)}"
            yield Finding(Grade.NOTE, "CRD", message, "use kubectl-hajob of the operator's version")
    if not wrong and len(gathered.crds) == len(CRD_NAMES):
        yield Finding(Grade.FINE, "CRD", "both are of this version")


def findings_of_operator(gathered: Gathered) -> Iterator[Finding]:
    """Yield whether an operator leads."""
    if Look.LEASE in gathered.unread:
        return
    spec = mapping((gathered.lease or {}).get("spec"))
    holder = text(spec.get("holderIdentity"))
    renewed = Reading(Terms(gathered.now_ms)).parse_timestamp(spec.get("renewTime"), "renewTime")
    do = "kubectl -n hajob-system get pods; trainings go on, but no node is replaced (docs/admin/admin.md)"
    if not holder or renewed is None:
        yield Finding(Grade.PROBLEM, "operator", "no operator leads: its Lease has no holder", do)
    elif (age := (gathered.now_ms - renewed) // 1000) > LEADS_SECONDS:
        yield Finding(Grade.PROBLEM, "operator", f"no operator leads: {holder} renewed its Lease {age} s ago", do)
    else:
        yield Finding(Grade.FINE, "operator", f"{holder} leads")


def _findings_of_report(gathered: Gathered) -> Iterator[Finding]:
    """What only the leader knows; where it cannot be asked, what the jobs say of the breaker."""
    report = gathered.report
    if report is None:
        held = next(
            (condition for _, condition in _conditions_with_reasons(gathered.jobs, {Reason.BREAKER_OPEN.word})), None
        )
        why = text(held.get("message")) if held is not None else ""
        if (
            not why
            and next(_conditions_with_reasons(gathered.jobs, {Reason.NOT_HELD.word}, status="False"), None) is None
        ):
            return  # neither the leader nor a job says whether it is open
    else:
        why = text(report.get("held"))
        if not report.get("complete"):
            yield Finding(Grade.NOTE, "operator", "the leader has not listed all objects yet")
    if why:
        do = "if the faults are real: kubectl hajob breaker --believe (docs/admin/faults.md#the-breaker)"
        yield Finding(Grade.PROBLEM, "breaker", f"open: {why}", do)
    else:
        yield Finding(Grade.FINE, "breaker", "closed: Hajob acts on faults of nodes and chips")


def _findings_of_sources(gathered: Gathered, faults: FaultsRead) -> Iterator[Finding]:
    if Look.SOURCES in gathered.unread:
        return  # what may be read of them tells nothing about what is missing
    seen = ", ".join(f"{row.name} {faults.seen[row.name]}" for row in registry.SOURCES)
    yield Finding(Grade.FINE, "sources", f"objects seen: {seen}")
    told = {
        name_of_object(raw)
        for raw in gathered.objects
        if raw.get("kind") == "ConfigMap" and data_of_config_map(raw, device_info.KEY)
    }
    chips = sorted(
        name_of_object(raw) for raw in gathered.objects if raw.get("kind") == "Node" and _has_node_chips(raw)
    )
    missing = [name for name in chips if f"mindx-dl-deviceinfo-{name}" not in told]
    if missing:
        message = (
            f"nodes with chips that have no mindx-dl-deviceinfo: {len(missing)} of {len(chips)}, "
            f"{first_of_list(missing)}"
        )
        do = "check the device plugin there: Hajob does not see faults of these chips"
        yield Finding(Grade.PROBLEM, "sources", message, do)
    if faults.silent:
        message = f"{counted_noun(len(faults.silent), 'silent writer')}: {first_of_list(faults.silent)}"
        yield Finding(
            Grade.PROBLEM,
            "sources",
            message,
            "check the device plugin there: Hajob ignores its last report",
        )


def _has_node_chips(raw: Json) -> bool:
    capacity = mapping(mapping(raw.get("status")).get("capacity"))
    return any(name.startswith(_CHIPS) and parse_whole_number(amount) for name, amount in capacity.items())


def _findings_of_rejected(gathered: Gathered, faults: FaultsRead) -> Iterator[Finding]:
    by_reason: dict[str, list[tuple[str, Rejection]]] = {}
    for title, one in faults.rejected:
        by_reason.setdefault(one.reason, []).append((title, one))
    for reason, listed in sorted(by_reason.items()):
        title, first = listed[0]
        more = f" and {len(listed) - 1} more" if len(listed) > 1 else ""
        do = "kubectl hajob facts -f OBJECT.yaml names each rejected part (docs/admin/faults.md)"
        yield Finding(Grade.PROBLEM, f"rejected: {reason}", f"{title}: {first.rejection_message}{more}", do)
    if not by_reason and Look.SOURCES not in gathered.unread:
        yield Finding(Grade.FINE, "rejected", "no object is rejected")


def _findings_of_standing(gathered: Gathered, faults: FaultsRead) -> Iterator[Finding]:
    harmful = sorted(faults.harmful_faults, key=lambda fact: fact.id)
    for fact in harmful[:MOST_SHOWN]:
        level = f"{fact.level}: " if fact.level else ""
        yield Finding(Grade.NOTE, f"fault on {fact.node}", f"{level}{fact.message}")
    if len(harmful) > MOST_SHOWN:
        nodes = len({fact.node for fact in harmful})
        yield Finding(
            Grade.NOTE,
            "faults",
            f"and {len(harmful) - MOST_SHOWN} more; {len(harmful)} on {counted_noun(nodes, 'node')} in all",
        )
    if not harmful and Look.SOURCES not in gathered.unread:
        yield Finding(Grade.FINE, "faults", "no fault of nodes or chips")


def _findings_of_quarantines(gathered: Gathered) -> Iterator[Finding]:
    active = [raw for raw in gathered.quarantines if mapping(raw.get("status")).get("state") == "Active"]
    for raw in sorted(active, key=name_of_object)[:MOST_SHOWN]:
        spec = mapping(raw.get("spec"))
        until = text(spec.get("expireTime")) or "its faults are gone"
        message = f"{spec.get('source')}, {spec.get('reason')}, until {until}: no new pods are placed there"
        yield Finding(
            Grade.NOTE,
            f"quarantine of {name_of_object(raw)}",
            message,
            f"kubectl hajob quarantine release {name_of_object(raw)}",
        )
    if len(active) > MOST_SHOWN:
        yield Finding(Grade.NOTE, "quarantine", f"{len(active)} nodes in all", "kubectl hajob quarantine")


def _conditions_with_reasons(
    jobs: Iterable[Json], reasons: set[str], status: str = "True"
) -> Iterator[tuple[Json, Mapping[str, Any]]]:
    for job in jobs:
        for condition in map(mapping, items(mapping(job.get("status")).get("conditions"))):
            if condition.get("reason") in reasons and condition.get("status") == status:
                yield job, condition


def title_of_job(job: Json) -> str:
    """Return what a finding about a job is about."""
    return f"job {text(mapping(job.get('metadata')).get('namespace'))}/{name_of_object(job)}"


def _findings_of_jobs(gathered: Gathered) -> Iterator[Finding]:
    troubled = 0
    for job in gathered.jobs:
        worst = [found for found in findings_of_status(job, gathered.now_ms) if found.grade is Grade.PROBLEM]
        if worst:
            troubled += 1
            namespace = mapping(job.get("metadata")).get("namespace")
            do = f"kubectl hajob doctor {name_of_object(job)} -n {namespace}"
            yield Finding(Grade.PROBLEM, title_of_job(job), f"{worst[0].about}: {worst[0].message}", do)
    if not troubled and Look.JOBS not in gathered.unread:
        yield Finding(Grade.FINE, "jobs", f"{len(gathered.jobs)}, none with a problem")


# --------------------------------------------------------------------------------------------------------- a job

_BAD: Final = frozenset(
    {
        (ConditionType.ACCEPTED, "False"),
        (ConditionType.ACCEPTED, "Unknown"),
        (ConditionType.SCHEDULED, "False"),
        (ConditionType.RECOVERABLE, "False"),
        (ConditionType.COORDINATOR_READY, "False"),
        (ConditionType.SPARES_READY, "False"),
        (ConditionType.DEGRADED, "True"),
        (ConditionType.HELD, "True"),
        (ConditionType.FAILED, "True"),
    }
)
"""Conditions that are bad for a reason that only a newer operator knows."""
_NEWER: Final = "Use kubectl-hajob of the operator's version, which knows this reason."
_NOTES: Final = frozenset(
    {
        Reason.UNRECOVERABLE,  # each precondition stands for itself, as a problem
        Reason.COORDINATOR_SHARES_NODE,
        Reason.FEWER_RANKS,
        Reason.SPARES_PENDING,
        Reason.SCRIPT_DISAGREES,
    }
)
"""Reasons with a remedy that nobody has to hurry with; every other remedy is one for a problem."""


def of_conditions(job: Json) -> Iterator[Finding]:
    """Yield the conditions of a job that are not as they should be."""
    told = {text(one.get("type")): one for one in map(mapping, items(mapping(job.get("status")).get("conditions")))}
    ended = next((kind for kind in _ENDED if mapping(told.get(kind)).get("status") == "True"), None)
    for kind, one in told.items():
        if ended is not None and kind != ended:
            continue  # of a job that is over only how it ended is of interest
        status, word = text(one.get("status")), text(one.get("reason"))
        reason = reason_of(kind, word)
        remedy = reason.remedy if reason is not None else _NEWER if (kind, status) in _BAD else ""
        if remedy:
            grade = Grade.NOTE if reason in _NOTES else Grade.PROBLEM
            yield Finding(grade, f"{kind}={status}/{word}", text(one.get("message")), remedy)


NEW_SECONDS: Final = 60
"""A leader writes the first status of a job within seconds; a standby that has just taken over within a minute."""
STILL_SECONDS: Final = 1800
"""The status of a training is written at least every ten minutes, with its step: three times that is no chance."""
SHORT_SECONDS: Final = 600
"""So long a job may be about to train, restart or recover before that is a problem: most starts take less."""
MANY_RESTARTS: Final = 3
"""After so many restarts a job that does not train, or has just begun to, is going round in circles."""
SETTLED_SECONDS: Final = 3600
"""A job that has trained for so long since its newest restart has left the circle."""


def findings_of_status(job: Json, now_ms: int) -> Iterator[Finding]:
    """Yield what the status of a job says, and whether it still counts."""
    status, metadata = mapping(job.get("status")), mapping(job.get("metadata"))
    conditions = {text(one.get("type")): one for one in map(mapping, items(status.get("conditions")))}
    if not conditions:
        age = _seconds_since(metadata.get("creationTimestamp"), now_ms)
        new = age is not None and age < NEW_SECONDS
        since = "" if age is None else f"; the job is {_duration_in_words(age)} old"
        grade = Grade.NOTE if new else Grade.PROBLEM
        yield Finding(grade, "status", f"no operator has written it yet{since}", _LOOK_AT_OPERATOR)
        return
    seen, newest = parse_whole_number(status.get("observedGeneration")), parse_whole_number(metadata.get("generation"))
    if seen is not None and newest is not None and seen < newest:
        message = f"it speaks of generation {seen} of the spec, which is at {newest}: the newest change is not served"
        yield Finding(Grade.PROBLEM, "status", message, f"If it stays: {_LOOK_AT_OPERATOR}")
    yield from of_conditions(job)
    if not any(mapping(conditions.get(kind)).get("status") == "True" for kind in _ENDED):
        yield from _findings_of_training(status, conditions, now_ms)


_LOOK_AT_OPERATOR: Final = "run `kubectl hajob doctor` without a job: it says whether an operator leads"


def _findings_of_training(
    status: Mapping[str, Any], conditions: Mapping[str, Mapping[str, Any]], now_ms: int
) -> Iterator[Finding]:
    """Whether a job that has not ended trains, since when, and how often it was started."""
    running = mapping(conditions.get(ConditionType.RUNNING))
    reason, since = text(running.get("reason")), _seconds_since(running.get("lastTransitionTime"), now_ms)
    if reason == Reason.RUNNING_SUSPENDED.word:
        return
    trains = running.get("status") == "True"
    if running and not trains:
        grade = Grade.PROBLEM if since is not None and since > SHORT_SECONDS else Grade.NOTE
        age = "" if since is None else f" for {_duration_in_words(since)}"
        do = "kubectl describe hajob; kubectl hajob logs JOB --rank N shows what a rank has printed"
        yield Finding(grade, "training", f"it has not trained{age}, {reason}: {text(running.get('message'))}", do)
    step = mapping(status.get("progress"))
    still = _seconds_since(step.get("observedTime"), now_ms)
    if trains and still is not None and still > STILL_SECONDS:
        message = f"step {step.get('step')} is the newest, and {_duration_in_words(still)} old: the status stands still"
        yield Finding(Grade.PROBLEM, "training", message, _LOOK_AT_OPERATOR)
    counts = mapping(status.get("restarts"))
    restarts = {kind: parse_whole_number(counts.get(kind)) or 0 for kind in ("infrastructure", "program")}
    total = sum(restarts.values())
    if total >= MANY_RESTARTS and not (trains and (since is None or since > SETTLED_SECONDS)):
        cause = mapping(mapping(next(iter(items(status.get("incidents"))), None)).get("cause"))
        told = " ".join(
            filter(None, (text(cause.get("code")), last_lines(text(cause.get("message")), MOST_SHOWN * 10)))
        )
        shares = ", ".join(f"{kind} {number}" for kind, number in restarts.items())
        message = f"restarted {total} times ({shares}), the newest cause: {told or 'not known'}"
        yield Finding(
            Grade.PROBLEM, "restarts", message, "find the repeated cause in status.incidents and the ranks' logs"
        )


def _seconds_since(moment: object, now_ms: int) -> int | None:
    """Age of a time of an object in whole seconds; None where there is none."""
    if not moment:
        return None
    at = Reading(Terms(now_ms)).parse_timestamp(moment, "time")
    return None if at is None else max(0, now_ms - at) // 1000


def _duration_in_words(seconds: int) -> str:
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"


def findings_of_job(job: Json, pods: Sequence[Json], gathered: Gathered) -> Iterator[Finding]:
    """Yield the findings about one job: what is unprotected, why, what to do."""
    yield from findings_of_unread(gathered)
    for leads in findings_of_operator(gathered):
        if leads.grade is not Grade.FINE:
            yield Finding(leads.grade, leads.about, f"{leads.message}; the rest is what the last one wrote", leads.do)
    own = [raw for raw in pods if pod.pod_view_of(raw).job_uid == _uid_of_job(job)]
    found = [*findings_of_status(job, gathered.now_ms), *_findings_of_leaving(own, gathered.now_ms)]
    found += _findings_of_pods(map(pod.pod_view_of, own), ended=_has_job_ended(job), finishes=_is_job_finishing(job))
    if Look.PODS not in gathered.unread:
        found += _findings_of_missing(job, [pod.pod_view_of(raw) for raw in own])
    yield from found
    if not found:
        yield Finding(Grade.FINE, "conditions", "all are fine")
    yield from _of_protection(mapping(job.get("status")))
    yield from _findings_of_places(
        {one.node_name for one in map(pod.pod_view_of, pods) if one.is_rank_pod and one.node_name}, gathered
    )


def _uid_of_job(job: Json) -> str:
    return text(mapping(job.get("metadata")).get("uid"))


def _of_protection(status: Mapping[str, Any]) -> Iterator[Finding]:
    """Each precondition once, with the actions that lack it; then what is left."""
    evaluated = [mapping(one) for one in items(status.get("recoverability"))]
    if not evaluated:
        yield Finding(Grade.NOTE, "protection", "not evaluated: the job is not training")
        return
    protection = mapping(status.get("protection"))
    for one in map(mapping, items(protection.get("unmet"))):
        message = f"{', '.join(map(text, items(one.get('actions'))))}: {text(one.get('message'))}"
        yield Finding(Grade.PROBLEM, text(one.get("name")), message, text(one.get("remedy")))
    if not protection:
        yield from _findings_of_older_protection(evaluated)
    if unknown := text(protection.get("unknown")):
        yield Finding(Grade.NOTE, "protection", unknown)
    told = {word: [text(one.get("action")) for one in evaluated if one.get("status") == word] for word in _WORKS}
    shares = [f"{_WORKS[word]}: {', '.join(actions)}" for word, actions in told.items() if actions]
    yield Finding(Grade.PROBLEM if told["False"] else Grade.FINE, "protection", "; ".join(shares))


def _findings_of_older_protection(evaluated: Iterable[Mapping[str, Any]]) -> Iterator[Finding]:
    """Yield the unmet preconditions of a status that an operator of an older version has written."""
    lacking: dict[tuple[str, str], list[str]] = {}
    for one in evaluated:
        for unmet in map(mapping, items(one.get("unmet")) if one.get("status") == "False" else ()):
            key = (text(unmet.get("name")), text(unmet.get("message")))
            lacking.setdefault(key, []).append(text(one.get("action")))
    for (name, message), actions in lacking.items():
        yield Finding(Grade.PROBLEM, name, f"{', '.join(actions)}: {message}", remedy_of_precondition(name))


_WORKS: Final = {"True": "works now", "Unknown": "no known obstacle", "False": "would not work"}


def _has_job_ended(job: Json) -> bool:
    told = map(mapping, items(mapping(job.get("status")).get("conditions")))
    return any(one.get("type") in _ENDED and one.get("status") == "True" for one in told)


def _is_job_finishing(job: Json) -> bool:
    """Whether the last step has ended, so that pods end one after the other while others save."""
    return _condition_of_job(job, ConditionType.RUNNING).get("reason") == Reason.FINISHING.word


def _findings_of_missing(job: Json, pods: Sequence[pod.PodView]) -> Iterator[Finding]:
    """Rank pods of a job in full size that are not there, or are over."""
    wanted, running = (
        parse_whole_number(mapping(job.get("spec")).get("numNodes")) or 0,
        _condition_of_job(job, ConditionType.RUNNING),
    )
    smaller = _condition_of_job(job, ConditionType.SHRUNK).get("status") == "True"
    if (
        _has_job_ended(job)
        or _is_job_finishing(job)
        or smaller
        or running.get("reason") in _WITHOUT_PODS
        or not running
    ):
        return
    there = len({one.node_rank for one in pods if one.is_rank_pod and not one.has_ended and not one.deleting})
    if there < wanted:
        message = f"{there} of {wanted} rank pods are there"
        yield Finding(Grade.PROBLEM, "pods", message, "If it stays: look at conditions Scheduled and Held of the job.")


_WITHOUT_PODS: Final = frozenset({Reason.RUNNING_SUSPENDED.word, Reason.NOT_STARTED.word})


def _condition_of_job(job: Json, kind: ConditionType) -> Mapping[str, Any]:
    told = map(mapping, items(mapping(job.get("status")).get("conditions")))
    return next((one for one in told if one.get("type") == kind), {})


def _findings_of_leaving(pods: Iterable[Json], now_ms: int) -> Iterator[Finding]:
    """Pods that do not go: a finalizer of somebody else, or a node that does not answer."""
    for raw in pods:
        metadata = mapping(raw.get("metadata"))
        age = _seconds_since(metadata.get("deletionTimestamp"), now_ms)  # of its end: the grace period is in it
        if age is not None and age > NEW_SECONDS:
            held = (
                f", finalizers: {', '.join(map(text, items(metadata.get('finalizers'))))}"
                if metadata.get("finalizers")
                else ""
            )
            message = f"should have been gone for {_duration_in_words(age)}{held}"
            do = "see who holds it; kubectl describe pod, and its node (docs/admin/operations.md)"
            yield Finding(Grade.PROBLEM, f"pod {name_of_object(raw)}", message, do)


def _findings_of_pods(pods: Iterable[pod.PodView], *, ended: bool, finishes: bool) -> Iterator[Finding]:
    for one in pods:
        if finishes and one.has_finished:
            continue
        look = f"kubectl describe pod {one.name} -n {one.namespace}"
        if one.trouble and not one.has_finished:
            yield Finding(Grade.PROBLEM, f"pod {one.name}", one.trouble, look)
        elif one.has_ended and not ended and not one.deleting:
            message = f"is over ({one.phase}), and the job is not"
            yield Finding(Grade.PROBLEM, f"pod {one.name}", message, look)
        elif one.unschedulable:
            yield Finding(Grade.NOTE, f"pod {one.name}", one.unschedulable)


def _findings_of_places(nodes: set[str], gathered: Gathered) -> Iterator[Finding]:
    """What stands where its ranks sit."""
    known = {name_of_object(raw): raw for raw in gathered.objects if raw.get("kind") == "Node"}
    for fact in sorted(read_all_faults(gathered).harmful_faults, key=lambda fact: fact.id):
        if fact.node in nodes:
            yield Finding(Grade.NOTE, f"fault on {fact.node}", f"{fact.level or fact.code}: {fact.message}")
    for name in sorted(nodes & known.keys()):
        if node.node_view_of(known[name]).is_to_be_emptied:
            yield Finding(Grade.NOTE, f"node {name}", "is being drained; spec.recovery.cordonPolicy says what follows")
    for raw in gathered.quarantines:
        if name_of_object(raw) in nodes and mapping(raw.get("status")).get("state") == "Active":
            do = f"kubectl hajob quarantine release {name_of_object(raw)}"
            yield Finding(
                Grade.NOTE, f"quarantine of {name_of_object(raw)}", "replacement pods are not placed there", do
            )


def selector_of_pods(job: str) -> str:
    """Return the label selector of a job's pods."""
    return f"{names.LABEL_JOB_NAME}={job}"
