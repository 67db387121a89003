"""The commands by name: what each one says of itself, and the module that carries it out.

They stand here, apart from their modules, so that `kubectl hajob --help` and a command load no other one.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Verb(NamedTuple):
    """A command.

    Attributes:
        module: of `hajob.cli`, or with its package, whose `add_parser` declares its options.
        sentence: of its help.
        example: of a command line, which its help shows and tests run.
    """

    module: str
    sentence: str
    example: str


VERBS: Final = {
    "list": Verb(
        "jobs",
        "list the jobs: state, reason, step, protection, and what each one in trouble waits for",
        "kubectl hajob list -A",
    ),
    "top": Verb("jobs", "show the jobs live, those in trouble first, until you press Ctrl-C", "kubectl hajob top -A"),
    "status": Verb(
        "status",
        "show one job on one screen: step, goodput, protection, nodes, newest incident",
        "kubectl hajob status qwen3-8b -n team",
    ),
    "watch": Verb(
        "watch",
        "show one job live, its nodes and ranks as a grid; a line for each change in a pipe",
        "kubectl hajob watch qwen3-8b -n team",
    ),
    "ui": Verb(
        "hajob.web.command",
        "show jobs, ranks and nodes live in a browser: a local page with your own rights, read only",
        "kubectl hajob ui -n team",
    ),
    "why": Verb("why", "explain why a job is as it is, and what to change", "kubectl hajob why qwen3-8b -n team"),
    "timeline": Verb(
        "timeline",
        "show what happened to a job, in order: incidents, planned work, Events",
        "kubectl hajob timeline qwen3-8b -n team --incident 2",
    ),
    "report": Verb(
        "report",
        "show where a job's time went, and what its incidents cost",
        "kubectl hajob report qwen3-8b -n team --since 7d",
    ),
    "nodes": Verb(
        "nodes",
        "list the nodes with chips: whose they are, what is free, faults and quarantines",
        "kubectl hajob nodes",
    ),
    "logs": Verb(
        "logs", "print the output of a rank, of every attempt that is kept", "kubectl hajob logs qwen3-8b --follow"
    ),
    "stacks": Verb(
        "stacks",
        "show where the ranks stand now, those at the same place together",
        "kubectl hajob stacks qwen3-8b -n team",
    ),
    "doctor": Verb(
        "doctor",
        "say what is wrong with the installation or a job, and what to do",
        "kubectl hajob doctor qwen3-8b -n team",
    ),
    "bundle": Verb(
        "bundle",
        "pack what there is to know of a job into an archive for support, without secrets",
        "kubectl hajob bundle qwen3-8b -n team",
    ),
    "suspend": Verb(
        "control",
        "save the training and end the job's pods; resume lets it go on",
        "kubectl hajob suspend qwen3-8b -n team",
    ),
    "resume": Verb(
        "control",
        "let a suspended job go on from where it was saved",
        "kubectl hajob resume qwen3-8b -n team",
    ),
    "restart": Verb(
        "control",
        "save the training and start the whole job anew; a failed job starts from its checkpoint",
        "kubectl hajob restart qwen3-8b -n team",
    ),
    "checkpoint": Verb(
        "control",
        "save the step where the training stands and go on from it; where it cannot be saved, train on",
        "kubectl hajob checkpoint qwen3-8b -n team",
    ),
    "migrate": Verb(
        "migrate",
        "move a job off nodes while it trains on",
        "kubectl hajob migrate qwen3-8b --off node-1 --off node-2",
    ),
    "drain": Verb(
        "drain",
        "cordon a node, so that jobs move off it while they train on, and say what keeps them there",
        "kubectl hajob drain node-3 --wait",
    ),
    "quarantine": Verb(
        "quarantine",
        "list, add and release nodes on which Hajob places no new pods",
        "kubectl hajob quarantine",
    ),
    "breaker": Verb(
        "breaker",
        "show whether Hajob holds faults of nodes and chips back, or accept them",
        "kubectl hajob breaker --believe",
    ),
    "lint": Verb(
        "lint",
        "say what is wrong with a manifest, or worth knowing, before it is applied; needs no cluster",
        "kubectl hajob lint examples/quickstart.yaml",
    ),
    "create": Verb(
        "create",
        "print a manifest made of a few options, or create the job; needs a cluster only with --apply",
        "kubectl hajob create qwen3-8b --image registry.example.org/train:1 --command 'bash train.sh' --nodes 4 "
        "--tensor 8 --pvc training",
    ),
    "simulate": Verb(
        "simulate",
        "show the recovery that Hajob would choose for a loss; needs no cluster",
        "kubectl hajob simulate -f examples/quickstart.yaml --lose node=1 --free-nodes 1",
    ),
    "survive": Verb(
        "survive",
        "show which losses of K nodes at once a job rides out, and how",
        "kubectl hajob survive -f examples/quickstart.yaml --nodes 2 --free-nodes 1",
    ),
    "convert": Verb(
        "convert",
        "make a HATrainingJob of an AscendJob, Volcano Job, PyTorchJob, TrainJob, JobSet or MPIJob; needs no cluster",
        "kubectl hajob convert -f ascend-job.yaml",
    ),
    "facts": Verb(
        "facts",
        "show which faults Hajob reads from objects, or why it rejects them; needs no cluster",
        "kubectl get node node-1 -o yaml | kubectl hajob facts -f - --job examples/quickstart.yaml",
    ),
    "inject": Verb(
        "inject",
        "inject a simulated fault of a node or chip, or remove it",
        "kubectl hajob inject sub-health node-2 3",
    ),
}
"""In the order of their help: what one looks at, what one steers by, what needs no cluster."""
