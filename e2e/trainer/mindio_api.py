"""The part of MindIO's processor side this trainer uses, as types.

The package itself is whatever lies on the path: the simulator or the real one. Neither has types a checker could use,
and the trainer must not depend on which of them is there; so what it relies on is written down here once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypedDict, TypeVar

T = TypeVar("T")


class Transfers(TypedDict):
    """`repair_info`: what kind of repair, and which rank sends to which."""

    type: list[int]
    repair_type: int
    src: list[int]
    dst: list[int]
    rank_list: list[int]


class SaveGroup(TypedDict):
    """One entry of `save_info`: the ranks that hold a complete copy of one kind of optimizer."""

    type: int
    ranks: list[int]


class Processor(Protocol):
    """Functions of the module `mindio_ttp.framework_ttp`."""

    def tft_init_processor(  # noqa: PLR0917 - the signature is MindIO's
        self,
        rank: int,
        world_size: int,
        enable_local_copy: bool,
        enable_tls: bool,
        tls_info: str,
        enable_uce: bool,
        enable_arf: bool,
        enable_zit: bool,
    ) -> None:
        """Make this process a processor; ends the process when it fails."""

    def tft_start_processor(self, master_ip: str, port: int) -> None:
        """Connect and register; ends the process when it fails."""

    def tft_is_reboot_node(self) -> bool:
        """Whether the job has been through a recovery already."""

    def tft_get_repair_type(self) -> str:
        """What goes on: "retry", "recover", "dump" or "unknow"."""

    def tft_get_repair_step(self) -> int:
        """Step after which a repair goes on; 0 before any."""

    def tft_report_error(self, error_type: int, error_code: str = ...) -> None:
        """Report a state by its number; MindSpore does, torch's decorator does it by itself."""

    def tft_wait_next_action(self) -> int:
        """Block; 0 means go on, 1 means leave."""

    def tft_destroy_processor(self) -> None:
        """Leave in order."""

    def tft_set_optimizer_replica(self, rank: int, replica_info: Sequence[Mapping[str, object]]) -> None:
        """Report who holds the copies of this rank's optimizer shard."""

    def tft_set_dp_group_info(self, rank: int, dp_rank_list: list[int]) -> None:
        """Report the pure data-parallel group."""

    def tft_start_updating_os(self) -> None:
        """Enter the optimizer's update; blocks while the rank is locked."""

    def tft_end_updating_os(self, step: int) -> None:
        """Leave the optimizer's update of `step`."""

    def tft_pause_train(self, cur_step: int) -> None:
        """Give MindIO the chance to pause after a step."""

    def tft_report_load_ckpt_step(self, step: int) -> None:
        """Say which step a repair from a checkpoint has loaded."""

    def tft_exception_handler(self, func: Callable[[T], None]) -> Callable[[T], None]:
        """Guard the training function."""

    def __getattr__(self, name: str) -> Callable[[Callable[..., object]], object]:
        """The `tft_register_…_handler` functions."""


class Marks(Protocol):
    """Functions of the module `mindio_ttp.utils`."""

    def tft_set_update_start_time(self, start_time: int) -> None:
        """Remember when the update began, in microseconds."""

    def tft_set_update_end_time(self, end_time: int) -> None:
        """Remember when the update ended, in microseconds."""
