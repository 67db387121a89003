"""Events about a job: reason, sentence, and whether a person may have to act.

One place, so that `kubectl hajob simulate` names the Events that the live operator posts.
"""

from dataclasses import dataclass

from hajob.api.conditions import Reason
from hajob.api.event_reasons import EventReason
from hajob.domain import incident_words
from hajob.domain.hardware import ClusterFact
from hajob.domain.incidents import Incident, IncidentOutcome
from hajob.domain.text import counted_noun
from hajob.plan import effects
from hajob.sources.creation import NotCreated


@dataclass(frozen=True, slots=True)
class Announcement:
    """One Event: its reason, which knows whether it is a warning, and a sentence."""

    reason: EventReason
    message: str

    @property
    def is_warning(self) -> bool:
        """Whether the Event is a warning: a person may have to act."""
        return self.reason.warning


def event_of_effect(effect: effects.Effect) -> Announcement | None:
    """Return the Event of an effect; None for most effects."""
    match effect:
        case effects.FailJob(_, message):
            return Announcement(EventReason.FAILED, message)
        case effects.CompleteJob():
            return Announcement(EventReason.COMPLETE, "every rank ended with exit code 0")
        case effects.Announce(reason, message):
            return Announcement(reason, message)
    return None


def event_of_opening(incident: Incident) -> Announcement:
    """Return the Event of an incident that opens; what is planned is no warning."""
    reason = EventReason.PLANNED_WORK if incident_words.is_planned(incident) else EventReason.RECOVERING
    return Announcement(reason, incident_words.first_sentence(incident))


def event_of_closing(
    closed: effects.CloseIncident, incident: Incident, outage_milliseconds: int | None, lost_steps: int = 0
) -> Announcement | None:
    """Return the Event of an incident that closes; none where it recovered from an outage of unknown length.

    What was planned and given up has an Event of its own.
    """
    planned = incident_words.is_planned(incident)
    if closed.outcome is IncidentOutcome.RECOVERED and outage_milliseconds is not None:
        lost = f"{counted_noun(lost_steps, 'step')} done again" if lost_steps else "no step lost"
        told = f"training again after {outage_milliseconds / 1000:.1f} s, {lost} ({incident.action})"
        return Announcement(EventReason.PLANNED_WORK_DONE if planned else EventReason.RECOVERED, told)
    if closed.outcome is IncidentOutcome.FAILED and closed.message and not planned:
        return Announcement(EventReason.NOT_RECOVERED, f"{incident.action} did not work: {closed.message}")
    return None


def event_of_creation(before: NotCreated | None, refused: NotCreated | None) -> Announcement | None:
    """Return the Event of pods that cannot be created; none while the kind of reason stays the same."""
    if refused is None or (before is not None and before.over_quota is refused.over_quota):
        return None
    reason = EventReason.QUOTA_EXCEEDED if refused.over_quota else EventReason.PODS_NOT_CREATED
    return Announcement(reason, refused.message)


def event_of_breaker(held: str) -> Announcement:
    """Return the Event of the breaker; `held`: why faults of nodes and chips are held back, empty: no longer."""
    if held:
        return Announcement(EventReason.BREAKER_OPEN, f"{Reason.BREAKER_OPEN.sentence} {held}")
    return Announcement(EventReason.BREAKER_CLOSED, Reason.NOT_HELD.sentence)


def event_of_unknown_chip(pod: str, fact: ClusterFact) -> Announcement:
    """Return the Event of a fault of a chip that a pod may or may not have."""
    told = f"{fact.message} (chip {fact.chip_number} of {fact.node}): whether {pod} has this chip is not known"
    return Announcement(EventReason.CHIP_UNKNOWN, f"{told}, for no annotation lists its chips; nothing is done")
