# ruff: noqa: ANN401 - values of strangers pass through here
"""A rank of the laboratory: a step loop under the decorator, handlers that tell their arguments.

Settings come in one command: {"settings": {...}} (see `Settings`). Commands later: {"raise": text} at the next
step, {"call": name, "args": [...]}, {"do": word} for the odd things a trainer can do.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mindio_ttp import framework_ttp as package

from e2e.mindio.lab.board import Board
from e2e.mindio.lab.lines import listen, tell

HANDLERS = ("stop", "clean", "repair", "rollback", "rebuild_group", "save_ckpt", "rename", "stream_sync", "exit")
ELASTIC = ("zit_downgrade_rebuild", "zit_upgrade_rebuild", "zit_upgrade_repair", "zit_upgrade_rollback")
RETURN_INT = ("clean",)
"""A handler of these that returns anything else aborts its process."""
ARGUMENTS = ("model", 7)


@dataclass
class Settings:
    """What the driver wants of this rank."""

    rank: int
    world: int
    address: str
    port: int
    board: str
    last_step: int = 100000
    step_seconds: float = 0.04
    groups: list[dict[str, Any]] | None = None
    dp_group: list[int] | None = None
    local_copy: bool = False
    uce: bool = True
    arf: bool = False
    zit: bool = False
    pauses: bool = True
    returns: dict[str, Any] = field(default_factory=dict)
    raises: list[str] = field(default_factory=list)
    slow: dict[str, float] = field(default_factory=dict)
    load_step: int = 0
    mindspore: bool = False
    init_finish: bool = False
    inside: list[str] = field(default_factory=list)


class Trainer:
    """The state of the training that the package must never touch."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.board = Board(Path(settings.board), settings.world)
        self.stop = threading.Event()
        self.members = list(range(settings.world))
        self.step = 0
        self.fresh = True
        self.raising: list[tuple[str, str]] = []
        self.hold = threading.Event()

    # ---- handlers

    def handler(self, name: str) -> Any:
        """A handler that tells its arguments, then does its part."""

        def called(*args: Any) -> Any:
            tell("handler", name=name, args=list(args), rank=self.settings.rank)
            time.sleep(self.settings.slow.get(name, 0.0))
            if name in self.settings.raises:
                raise ValueError(f"{name} was asked to raise")
            part = getattr(self, f"on_{name}", None)
            if part is not None:
                part(*args)
            return self.settings.returns.get(name, 0 if name in RETURN_INT else None)

        return called

    def on_stop(self, *_: Any) -> None:
        """Break the collective."""
        self.stop.set()

    def on_repair(self, step: int, _rebuild: bool, _errors: list[int], info: dict[str, Any], *_: Any) -> None:
        """Load the checkpoint when that is the way."""
        if info["repair_type"] in {5, 6} and self.settings.load_step:
            self.step = self.settings.load_step
            package.tft_report_load_ckpt_step(self.settings.load_step)
        else:
            self.step = step

    def on_rollback(self, step: int, *_: Any) -> None:
        """Back to the step."""
        self.step = step if not self.settings.load_step else self.step or step
        self.board.clear(self.step)
        self.board.put(self.settings.rank, self.step)

    def on_zit_upgrade_rollback(self, step: int, *_: Any) -> None:
        """Back to the step, with everybody."""
        self.step = step
        self.members = list(range(self.settings.world))
        self.board.put(self.settings.rank, step)

    def on_zit_downgrade_rebuild(self, _group: list[int], remaining: list[int], *_: Any) -> None:
        """Go on with fewer."""
        self.members = list(remaining)
        self.board.put(self.settings.rank, self.step)

    # ---- training

    def train(self, *_: Any) -> str:
        """The decorated function's body."""
        self.stop.clear()
        reboot = self.fresh and package.tft_is_reboot_node()
        tell("call", rank=self.settings.rank, step=self.step, reboot=reboot)
        if reboot:
            self.fresh = False
            tell("arf", rank=self.settings.rank, type=package.tft_get_reboot_type())
            raise RuntimeError("ARF FINISH")
        self.fresh = False
        while self.step < self.settings.last_step:
            self.one_step()
        tell("trained", rank=self.settings.rank)  # leaving MindIO after it may hang for ever
        return "done"

    def one_step(self) -> None:
        """One step: pause point, collective, update."""
        if self.settings.pauses:
            package.tft_pause_train(self.step)
        self.fail("step")
        time.sleep(self.settings.step_seconds)
        self.board.meet(self.settings.rank, self.step + 1, self.members, self.stop)
        package.tft_start_updating_os(self.step if self.settings.local_copy else -1)
        self.fail("update")
        package.tft_end_updating_os(self.step + 1)
        self.step += 1
        tell("step", rank=self.settings.rank, step=self.step)

    def fail(self, place: str) -> None:
        """Raise, or hang, when that was asked for at this place."""
        for wanted in [r for r in self.raising if r[0] == place]:
            self.raising.remove(wanted)
            if wanted[1] == "hang":
                tell("hangs", rank=self.settings.rank)
                self.hold.wait()
            elif wanted[1].startswith("value:"):
                raise ValueError(wanted[1])
            else:
                raise RuntimeError(wanted[1])


def register(trainer: Trainer) -> None:
    """Register every handler, each with a context that names it."""
    for name in HANDLERS + ELASTIC:
        getattr(package, f"tft_register_{name}_handler")(trainer.handler(name), f"ctx-{name}")


def start(settings: Settings) -> Trainer:
    """Initialise, connect, report the groups."""
    trainer = Trainer(settings)
    register(trainer)
    s = settings
    package.tft_init_processor(
        s.rank, s.world, s.local_copy, enable_tls=False, enable_uce=s.uce, enable_arf=s.arf, enable_zit=s.zit
    )
    package.tft_start_processor(s.address, s.port)
    tell("registered", rank=s.rank)
    if s.groups:
        package.tft_set_optimizer_replica(s.rank, s.groups)
    if s.dp_group:
        package.tft_set_dp_group_info(s.rank, s.dp_group)
    return trainer


def mindspore_loop(trainer: Trainer) -> None:
    """MindSpore's framework catches, reports and waits itself, once."""
    initialised = not trainer.settings.init_finish
    while True:
        try:
            trainer.train()
        except RuntimeError as error:
            state = 6 if "ARF FINISH" in str(error) else 0 if "FORCE STOP" in str(error) else 8
            if state == 6 and not initialised:
                package.tft_report_error(5)
                package.tft_wait_next_action()
                initialised = True
            package.tft_report_error(state)
            if package.tft_wait_next_action():
                tell("leave", rank=trainer.settings.rank)
                time.sleep(3600)
        else:
            return


def main() -> None:
    """Wait for the settings, then train; commands come in beside it."""
    ready = threading.Event()
    box: dict[str, Any] = {}

    def take(command: dict[str, Any]) -> None:
        if "settings" in command:
            box["settings"] = Settings(**command["settings"])
            ready.set()
        elif "raise" in command:
            box["trainer"].raising.append((command.get("place", "step"), command["raise"]))
        elif "change" in command:
            for name, value in command["change"].items():
                setattr(box["trainer"].settings, name, value)
        elif "call" in command:
            answer(command)

    threading.Thread(target=listen, args=(take,), daemon=True).start()
    ready.wait()
    trainer = box["trainer"] = start(box["settings"])
    if box["settings"].mindspore:
        mindspore_loop(trainer)
    else:
        decorated = package.tft_exception_handler(trainer.train)
        tell("returned", value=decorated(*ARGUMENTS), rank=trainer.settings.rank)
    tell("ends", rank=trainer.settings.rank)
    os._exit(0)


def answer(command: dict[str, Any]) -> None:
    """Call a function of the package and tell what came back."""
    name = command["call"]
    function = getattr(package, f"tft_{name}", None) or getattr(package, name)
    try:
        value = function(*command.get("args", []))
    except BaseException as error:  # whatever it raises is the answer
        tell("answer", call=name, raised=type(error).__name__, text=str(error))
    else:
        tell("answer", call=name, value=value)


if __name__ == "__main__":
    main()
