"""The facts an agent can observe, with ids that are the same whenever the same thing is observed.

An id is made of the pod's UID and the thing itself, so an agent that was restarted, or reports on another stream, says
nothing new by repeating it.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable

from hajob.domain.facts import CONTAINER_KILLED, CONTAINER_STOPPED
from hajob.domain.text import last_lines
from hajob.protocol import sidecar_pb2 as pb
from hajob.protocol.addresses import host_port
from trainer_sidecar.agent.clock import SECOND
from trainer_sidecar.agent.settings import AgentSettings
from trainer_sidecar.agent.supervise.launcher_messages import Script
from trainer_sidecar.agent.supervise.log_rules import Match
from trainer_sidecar.agent.supervise.ranks import RankProcess
from trainer_sidecar.launcher.endings import FAULT
from trainer_sidecar.launcher.protocol import ProcessName

# A traceback of a training framework stands whole in it; what is kept of a fact for people is shorter.
MESSAGE_CHARACTERS = 4000
NOT_FINISHED = "NotFinished"
NOT_RELOADED = "CheckpointNotReloaded"

ENDED_WITH_CONTAINER = {
    CONTAINER_STOPPED: "the container was told to stop: its pod is deleted, evicted, preempted, or the node shuts down",
    CONTAINER_KILLED: "the launcher, first process of container trainer, is gone, and its ranks with it: the container "
    "was killed as a whole, by its memory limit or by hand",
}
"""Why processes ended with their container, without a fault of their own, by code."""


def _fact_of_process(
    settings: AgentSettings,
    kind: pb.FactKind,
    subject: str,
    rank: int,
    name: ProcessName,
    *,
    number: int | None = None,
    step: int | None = None,
) -> pb.Fact:
    """A fact about one process of a rank; `number` tells apart what can be observed of it more than once."""
    identity = f"{settings.pod_uid}/{subject}/{rank}/{name.incarnation}/{name.start}"
    return pb.Fact(
        id=identity if number is None else f"{identity}/{number}",
        kind=kind,
        node_rank=settings.node_rank,
        ranks=[rank],
        incarnation=name.incarnation,
        start=name.start,
        step=step,
    )


def process_exited_fact(settings: AgentSettings, process: RankProcess, step: int | None) -> pb.Fact:
    """Report that a rank's process has ended although it was not told to."""
    fact = _fact_of_process(settings, pb.PROCESS_EXITED, "exit", process.rank, process.name, step=step)
    fact.exit_code = process.exit_code
    told = [line for kind, line in process.notices.items() if kind != FAULT and line not in process.last_lines]
    fact.code, fact.message = name_of_exit_code(process.exit_code), newest_lines_text([*process.last_lines, *told])
    return fact


def ended_with_container_fact(settings: AgentSettings, process: RankProcess, step: int | None, code: str) -> pb.Fact:
    """Report that a rank's process has ended with its container; the pod tells why, the rank's output does not."""
    fact = process_exited_fact(settings, process, step)
    fact.code, fact.message, fact.unexplained = code, ENDED_WITH_CONTAINER[code], True
    return fact


def not_finished_fact(settings: AgentSettings, process: RankProcess, step: int | None, problem: str) -> pb.Fact:
    """Report that a rank's process has ended with 0 before the end of its training; `problem` names the line."""
    fact = process_exited_fact(settings, process, step)
    fact.code, fact.message = NOT_FINISHED, newest_lines_text([*process.last_lines, problem])
    return fact


def not_reloaded_fact(settings: AgentSettings, process: RankProcess, step: int | None, problem: str) -> pb.Fact:
    """Report that a rank trains again from a step before the one that its start was to load."""
    fact = _fact_of_process(settings, pb.LOG_RULE, "reload", process.rank, process.name, step=step)
    fact.code, fact.message = NOT_RELOADED, problem
    return fact


def script_ended_fact(settings: AgentSettings, script: Script, *, reason: str) -> pb.Fact:
    """Build the fact that the start script has ended although its ranks have not finished.

    `reason` completes "the start script ended".
    """
    return pb.Fact(
        id=f"{settings.pod_uid}/script",
        kind=pb.SCRIPT_ENDED,
        node_rank=settings.node_rank,
        ranks=list(settings.local_ranks),
        incarnation=settings.incarnation,
        exit_code=script.exit_code,
        code=name_of_exit_code(script.exit_code),
        message=newest_lines_text(
            [f"the start script ended {reason} ({name_of_exit_code(script.exit_code)})", *script.last_lines]
        ),
    )


def heartbeat_silent_fact(settings: AgentSettings, rank: int, name: ProcessName, since: int, now: int) -> pb.Fact:
    """Report a rank that is linked to MindIO's controller but sends nothing: MindIO itself never reports it.

    A process may fall silent more than once: `since`, when it last spoke (nanoseconds), tells the times apart.
    """
    fact = _fact_of_process(settings, pb.HEARTBEAT_SILENT, "silent", rank, name, number=since)
    fact.message = (
        f"rank {rank} is linked to the MindIO controller, but no heartbeat has passed for "
        f"{(now - since) / SECOND:.0f} s; MindIO never reports such a rank, and its next fault would not be noticed"
    )
    return fact


def log_rule_fact(settings: AgentSettings, match: Match, step: int | None, lines: Iterable[str]) -> pb.Fact:
    """Build the fact that a rank has printed often enough what a log rule looks for, last in the last of `lines`."""
    fact = _fact_of_process(
        settings, pb.LOG_RULE, f"log/{match.rule}", match.rank, match.name, number=match.count, step=step
    )
    fact.code, fact.message = match.rule, newest_lines_text(lines)
    return fact


def stack_fact(settings: AgentSettings, rank: int, name: ProcessName, number: int, lines: Iterable[str]) -> pb.Fact:
    """Report where a rank's process stands, as the coordinator asked for the `number`-th time."""
    fact = _fact_of_process(settings, pb.STACK, "stack", rank, name, number=number)
    fact.message = newest_lines_text(lines)
    return fact


def port_taken_fact(settings: AgentSettings, port: int, problem: OSError) -> pb.Fact:
    """Report that another process listens on the gate's port."""
    return pb.Fact(
        id=f"{settings.pod_uid}/port/{port}",
        kind=pb.PORT_TAKEN,
        node_rank=settings.node_rank,
        ranks=list(settings.local_ranks),
        incarnation=settings.incarnation,
        code=str(port),
        message=port_taken_text(settings, port, problem),
    )


def port_taken_text(settings: AgentSettings, port: int, problem: OSError) -> str:
    """Say what to do about a port that can't be listened on."""
    field = "rendezvousPort" if port == settings.rendezvous_port else "mindIOPort"
    return (
        f"{host_port(settings.pod_address, port)} cannot be listened on ({problem.strerror or problem}): another "
        "process of this pod or, with hostNetwork or a listener on 0.0.0.0, of this node has it; end it, or choose "
        f"another port in spec.network.{field}; tried again every second"
    )


def copies_not_registered_problem(rank: int) -> pb.Problem:
    """Report a rank that trains although MindIO could recover nothing."""
    text = (
        f"rank {rank} trains and has not told MindIO where the copies of its optimizer are "
        "(tft_set_optimizer_replica): no fault can be recovered, every one costs a restart"
    )
    return pb.Problem(code="CopiesNotRegistered", message=text)


def table_not_written_problem(settings: AgentSettings, why: str) -> pb.Problem:
    """Report a pod whose ranks cannot start because its rank table cannot be written."""
    text = f"pod {settings.pod_name} cannot write the rank table {settings.rank_table}: {why}; tried again every second"
    return pb.Problem(code="RankTableNotWritten", message=text)


def tls_mismatch_problem(rank: int, settings: AgentSettings) -> pb.Problem:
    """Report a rank that speaks TLS and is not understood: there is none on this side, or another authority."""
    if settings.mindio_tls_directory is None:
        text = (
            f"rank {rank} opens MindIO's port {settings.mindio_port} with TLS, and Hajob's side speaks none: switch "
            "MindIO's TLS off in the trainer (enable_tls=False of tft_init_processor), or make the job anew with "
            "spec.network.mindIOTLSPolicy: Enabled"
        )
    else:
        text = (
            f"rank {rank}'s TLS with its gate at MindIO's port {settings.mindio_port} fails, and the log of container "
            "agent says why: give tft_init_processor, with enable_tls=True, the text of the file that "
            "HAJOB_MINDIO_TLS_INFO names as tls_info, or switch it off (enable_tls=False): between the pods it is "
            "encrypted either way"
        )
    return pb.Problem(code="MindIOTLSMismatch", message=text)


def name_of_exit_code(code: int) -> str:
    """Return an exit code in words: `exit 1`, `SIGKILL`."""
    if code >= 0:
        return f"exit {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def newest_lines_text(lines: Iterable[str]) -> str:
    """Return the last lines, as many as travel with a fact."""
    return last_lines("\n".join(lines), MESSAGE_CHARACTERS)
