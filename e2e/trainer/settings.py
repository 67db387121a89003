"""What a rank is told: Megatron's flags, the rank environment of a launcher, and MindIO's variables.

Flags have Megatron's and MindSpeed-LLM's names, so that a start script written for those reads the same here.
`HIGH_AVAILABILITY` only adds switches; it cannot turn a flag off (docs/internals/toy-trainer.md, "Flags").
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from e2e.trainer.layout import Layout
from e2e.trainer.manners import QUIET, manners_from
from e2e.trainer.printing import MEGATRON, MINDFORMERS, Speaker
from e2e.trainer.refusals import Sizes, check_options, checked_data_parallel
from e2e.trainer.store_wire import Version, version_from

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


IGNORED: Final = """
    seq-length max-position-embeddings num-attention-heads tokenizer-type tokenizer-name-or-path data-path split
    lr-decay-style min-lr weight-decay lr-warmup-fraction init-method-std attention-dropout hidden-dropout
    position-embedding-type normalization clip-grad adam-beta1 adam-beta2 initial-loss-scale distributed-backend
    ckpt-format
    distributed-timeout-minutes make-vocab-size-divisible-by
"""
"""Flags with a value that start scripts give and that change nothing here."""
IGNORED_SWITCHES: Final = """
    use-mcore-models sequence-parallel use-flash-attn use-rotary-position-embeddings use-fused-rmsnorm use-fused-swiglu
    swiglu bf16 untie-embeddings-and-output-weights disable-bias-linear no-masked-softmax-fusion
    no-gradient-accumulation-fusion attention-softmax-in-fp32 overlap-grad-reduce overlap-param-gather no-load-rng
    no-save-rng log-throughput
"""
FEATURES: Final = ("TTP", "UCE", "HCCE", "ARF")
"""Words of MindSpore's switch."""
HURRY: Final = "hurry"
"""A file in the log directory: from now on no step takes longer than it must."""


@dataclass(frozen=True)
class Model:
    """Sizes of the network; `layers` counts those of all pipeline stages together."""

    layers: int
    hidden: int
    feed_forward: int
    vocabulary: int = 16
    context: int = 4


@dataclass(frozen=True)
class Loading:
    """What a start takes from the checkpoint it finds.

    Attributes:
        finetune: Weights only, and the counter begins at 0.
        optimizer: The optimizer's state as well.
        must_exist: End where there is no tracker, instead of starting from random weights.
    """

    finetune: bool = False
    optimizer: bool = True
    must_exist: bool = False


@dataclass(frozen=True)
class Place:
    """The process among its peers, from the launcher's environment."""

    rank: int
    world: int
    address: str
    attempt: int
    incarnation: int
    exec_time_ns: int
    store_host: str
    store_port: int
    controller_host: str
    controller_port: int


@dataclass(frozen=True)
class Settings:
    """Everything a training needs to know before it starts."""

    layout: Layout
    model: Model
    place: Place
    train_iters: int
    micro_batch_size: int
    micro_batches: int
    save: Path | None
    load: Path | None
    save_interval: int
    loading: Loading
    log_interval: int
    eval_interval: int
    eval_iters: int
    exit_interval: int
    epoch: int
    shared_format: bool
    log_dir: Path
    seed: int
    learning_rate: float
    step_seconds: float
    distributed: bool
    mates: tuple[int, ...]
    protected: bool
    enable_uce: bool
    enable_arf: bool
    enable_zit: bool
    faults: tuple[str, ...]
    digests: bool
    flip_restored_byte: bool
    registers: bool
    store_version: Version
    mindio_tls: str
    relays: bool
    manners: frozenset[str]
    face: str

    @property
    def speaker(self) -> Speaker:
        """Who prints what."""
        rank, world = self.place.rank, self.place.world
        is_quiet = QUIET in self.manners and self.face != MINDFORMERS
        return Speaker(rank, world, is_quiet, self.log_interval, self.train_iters, self.epoch, self.face)


def parser() -> argparse.ArgumentParser:
    """Command line of `python3 -m e2e.trainer.train`."""
    result = argparse.ArgumentParser(prog="e2e.trainer.train", description="Toy training in NumPy under MindIO.")
    number = result.add_argument
    number("--tensor-model-parallel-size", type=int, default=1)
    number("--pipeline-model-parallel-size", type=int, default=1)
    number("--use-tp-pp-dp-mapping", action="store_true", help="number ranks with the data index slowest")
    number("--num-layers", type=int, default=2)
    number("--hidden-size", type=int, default=32)
    number("--ffn-hidden-size", type=int, default=64)
    number("--train-iters", type=int, default=100)
    number("--micro-batch-size", type=int, default=4)
    number("--global-batch-size", type=int, default=0, help="samples per step; 0: two micro batches per rank")
    number("--lr", type=float, default=1e-2)
    number("--seed", type=int, default=1234)
    number("--save", type=Path)
    number("--load", type=Path)
    number("--save-interval", type=int, default=0, help="steps between periodic checkpoints; 0: none")
    number("--eval-interval", type=int, default=0, help="steps between evaluations; 0: none")
    number("--eval-iters", type=int, default=10)
    number("--exit-interval", type=int, default=0, help="end with 0 after a step that this divides; 0: never")
    number("--log-interval", type=int, default=1, help="steps between two step lines")
    number("--steps-per-epoch", type=int, default=100, help="MindFormers' face: steps are counted within the epoch")
    number("--shared-format", action="store_true", help="MindFormers' face: use_legacy_format is False")
    number("--finetune", action="store_true", help="load weights only and count from step 0")
    number("--no-load-optim", action="store_true")
    number("--no-save-optim", action="store_true")
    number("--exit-on-missing-checkpoint", action="store_true")
    number("--context-parallel-size", type=int, default=1)
    number("--expert-model-parallel-size", type=int, default=1)
    number("--expert-tensor-parallel-size", type=int, default=0)
    number("--local-rank", "--local_rank", type=int, help="given by torch.distributed.launch")
    for name in IGNORED.split():
        number(f"--{name}", help=argparse.SUPPRESS)
    for name in IGNORED_SWITCHES.split():
        number(f"--{name}", action="store_true", help=argparse.SUPPRESS)
    number("--no-shared-storage", action="store_true", help="a rank that comes back waits for those of its node")
    for name in ("use-dist-ckpt", "swap-attention", "swap-optimizer", "disable-gloo-group"):
        number(f"--{name}", action="store_true", help="refused with high availability")
    number("--lora-target-modules", nargs="+", default=[], help="refused with high availability")
    number("--use-distributed-optimizer", action="store_true")
    number("--distributed-optimizer-no-replica", action="store_true")
    number("--enable-high-availability", action="store_true")
    number("--enable-hbmfault-repair", action="store_true")
    number("--enable-worker-reboot", action="store_true")
    number("--enable-elastic-training", action="store_true")
    number(
        "--step-time-ms",
        type=float,
        default=0.0,
        help=f"a step takes at least this long, until <log-dir>/{HURRY} exists",
    )
    number("--log-dir", type=Path, default=Path("logs"))
    number("--log-digests", action="store_true", help="log a digest of the whole state after each step")
    number("--fault", action="append", default=[], help="a fault of the test rig, see e2e/trainer/faults.py")
    return result


def copies_of(options: argparse.Namespace, data: int, *, protected: bool) -> int:
    """Number of places that hold one optimizer shard (docs/internals/toy-trainer.md, "Layout")."""
    if not options.use_distributed_optimizer:
        return data
    if options.distributed_optimizer_no_replica or data == 1 or not protected:
        return 1
    return 2


@dataclass(frozen=True)
class Names:
    """Under which names a framework finds its place; those after the first four have a default."""

    rank: str
    world: str
    store_host: str
    store_port: str
    controller_host: str
    controller_port: str


TORCH: Final = Names("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TTP_ADDR", "TTP_PORT")
MINDSPORE: Final = Names("RANK_ID", "RANK_SIZE", "MS_SCHED_HOST", "MS_SCHED_PORT", "MS_TFT_IP", "MS_TFT_PORT")


def place_from(environment: Mapping[str, str], names: Names = TORCH) -> Place:
    """Read the rank environment; raises KeyError for what is missing, ValueError for a rank that has two numbers.

    MindSpore reads none of torch's variables, and MindIO takes the rank from MS_NODE_ID, which only an explicit node
    rank sets.
    """
    get = environment.get
    rank = int(environment[names.rank])
    if names is MINDSPORE and int(environment["MS_NODE_ID"]) != rank:
        raise ValueError(f"MS_NODE_ID is {environment['MS_NODE_ID']}, RANK_ID is {rank}")
    controller = environment[names.controller_host] if names is MINDSPORE else get(names.controller_host, "127.0.0.1")
    return Place(
        rank=rank,
        world=int(environment[names.world]),
        address=get("POD_IP", "127.0.0.1"),
        attempt=int(get("HAJOB_ATTEMPT") or get("TORCHELASTIC_RESTART_COUNT") or 0),
        incarnation=int(get("HAJOB_INCARNATION") or 0),
        exec_time_ns=int(get("HAJOB_EXEC_TIME") or 0),
        store_host=environment[names.store_host],
        store_port=int(get(names.store_port) or 29500),
        controller_host=controller,
        controller_port=int(
            environment[names.controller_port] if names is MINDSPORE else get(names.controller_port) or 8000
        ),
    )


def settings_from(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> Settings:
    """Parse flags and environment; raises ValueError with what does not fit, exits on an unknown flag."""
    options = parser().parse_args(arguments)
    face = MINDFORMERS if environment.get("MINDIO_FOR_MINDSPORE", "").lower() in {"1", "true"} else MEGATRON
    place = place_from(environment, MINDSPORE if face == MINDFORMERS else TORCH)
    words = set(environment.get("HIGH_AVAILABILITY", "").replace(";", ",").split(","))
    any_word = bool(words & {"dump", "retry", "recover", "elastic-training"})
    available = options.enable_high_availability or any_word
    protected = any(_is_on(word, environment) for word in FEATURES) if face == MINDFORMERS else available
    if available:
        check_options(options)
    data = checked_data_parallel(sizes_from(options), place.world, replicas=available and _has_replicas(options))
    layout = Layout(
        tensor=options.tensor_model_parallel_size,
        data=data,
        pipeline=options.pipeline_model_parallel_size,
        copies=copies_of(options, data, protected=protected),
        tensor_pipeline_data=options.use_tp_pp_dp_mapping,
    )
    model = Model(options.num_layers, options.hidden_size, options.ffn_hidden_size)
    _check_model(model, layout)
    return Settings(
        layout=layout,
        model=model,
        place=place,
        train_iters=options.train_iters,
        micro_batch_size=options.micro_batch_size,
        micro_batches=_micro_batches(options, data),
        save=options.save,
        load=options.load,
        save_interval=options.save_interval,
        loading=Loading(options.finetune, not options.no_load_optim, options.exit_on_missing_checkpoint),
        log_interval=options.log_interval,
        eval_interval=options.eval_interval,
        eval_iters=options.eval_iters,
        exit_interval=options.exit_interval,
        epoch=options.steps_per_epoch,
        shared_format=options.shared_format,
        log_dir=options.log_dir,
        seed=options.seed,
        learning_rate=options.lr,
        step_seconds=options.step_time_ms / 1000,
        distributed=options.use_distributed_optimizer,
        mates=mates_of(place.rank, environment) if options.no_shared_storage else (),
        protected=protected,
        enable_uce=(available and (options.enable_hbmfault_repair or "retry" in words)) or _is_on("UCE", environment),
        enable_arf=(available and (options.enable_worker_reboot or "recover" in words)) or _is_on("ARF", environment),
        enable_zit=available and (options.enable_elastic_training or "elastic-training" in words),
        faults=tuple(options.fault),
        digests=options.log_digests,
        flip_restored_byte=environment.get("TOY_FLIP_RESTORED_BYTE") == "1",
        registers=environment.get("TOY_REGISTERS_NOTHING") != "1",
        store_version=version_from(environment),
        mindio_tls=_mindio_tls(environment),
        relays=environment.get("TOY_RELAY") == "1",
        manners=manners_from(environment),
        face=face,
    )


def _mindio_tls(environment: Mapping[str, str]) -> str:
    """What MindIO is told of its certificates: the trainer's own, or with `job` those of the job."""
    told = environment.get("TOY_MINDIO_TLS", "")
    return Path(environment["HAJOB_MINDIO_TLS_INFO"]).read_text() if told == "job" else told


def mates_of(rank: int, environment: Mapping[str, str]) -> tuple[int, ...]:
    """Ranks of this node for whom a rank that comes back waits, unless it is told that it comes back alone."""
    if environment.get("RESTART_FAULT_PROCESS_TYPE", "pod") != "pod":
        return ()
    size = int(environment.get("LOCAL_WORLD_SIZE") or 1)
    first = rank - rank % size
    return tuple(mate for mate in range(first, first + size) if mate != rank)


def sizes_from(options: argparse.Namespace) -> Sizes:
    """The sizes of parallelism that the flags give."""
    return Sizes(
        tensor=options.tensor_model_parallel_size,
        pipeline=options.pipeline_model_parallel_size,
        context=options.context_parallel_size,
        expert=options.expert_model_parallel_size,
        expert_tensor=options.expert_tensor_parallel_size,
    )


def _has_replicas(options: argparse.Namespace) -> bool:
    return bool(options.use_distributed_optimizer and not options.distributed_optimizer_no_replica)


def _micro_batches(options: argparse.Namespace, data: int) -> int:
    """Micro batches in one global batch."""
    size = options.global_batch_size or options.micro_batch_size * data * 2
    if size % (options.micro_batch_size * data):
        raise ValueError(
            f"--global-batch-size {size} must be a multiple of --micro-batch-size {options.micro_batch_size} "
            f"times the data-parallel size {data}"
        )
    return int(size // options.micro_batch_size)


def _check_model(model: Model, layout: Layout) -> None:
    if model.layers % layout.pipeline:
        raise ValueError(f"--num-layers {model.layers} must be a multiple of the pipeline size {layout.pipeline}")
    if model.feed_forward % layout.tensor:
        raise ValueError(
            f"--ffn-hidden-size {model.feed_forward} must be a multiple of the tensor size {layout.tensor}"
        )


def _is_on(word: str, environment: Mapping[str, str]) -> bool:
    """Whether MindSpore's switch has the word, which counts only without a blank: `{ARF: 1}` is off."""
    return f"{word}:1" in environment.get("MS_ENABLE_TFT", "")
