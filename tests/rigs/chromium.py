"""A real Chromium without a window, driven by its own protocol (DevTools).

The protocol is JSON on a web socket, which aiohttp speaks already: a driver of its own would bring a second browser's
worth of programs. Where there is no Chromium (Debian's package, or `HAJOB_CHROMIUM`), tests are skipped and say so.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

Json = dict[str, Any]

START_SECONDS: Final = 60.0
WAIT_SECONDS: Final = 30.0
"""For what must appear on a page; a machine with two busy cores needs some."""
_LISTENS: Final = re.compile(rb"DevTools listening on (ws://\S+)")
_FLAGS: Final = (
    "--headless=new",
    "--no-sandbox",  # tests may run as root, in a container
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)


def chromium_path() -> str | None:
    """Where it is, if it is there."""
    return os.environ.get("HAJOB_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


needs_chromium = pytest.mark.skipif(chromium_path() is None, reason="needs Chromium: apt-get install chromium")


class Tab:
    """One page of a browser.

    Attributes:
        complaints: What the browser has found wrong with it: exceptions, errors of the console, broken policies.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.complaints: list[str] = []
        self._socket, self._numbers = socket, count(1)
        self._answers: dict[int, asyncio.Future[Json]] = {}
        self._session = ""
        self._reader = asyncio.create_task(self._read())

    async def attach(self) -> None:
        """Open an empty page, and hear of what goes wrong there."""
        target = (await self.call("Target.createTarget", url="about:blank"))["targetId"]
        self._session = (await self.call("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            await self.call(f"{domain}.enable")

    async def call(self, method: str, **parameters: Any) -> Json:
        """Call a method of the protocol; its error is an AssertionError."""
        number = next(self._numbers)
        waiting = self._answers[number] = asyncio.get_running_loop().create_future()
        told = {"id": number, "method": method, "params": parameters}
        await self._socket.send_json(told | ({"sessionId": self._session} if self._session else {}))
        async with asyncio.timeout(START_SECONDS):
            answer = await waiting
        del self._answers[number]
        assert "error" not in answer, f"{method}: {answer.get('error')}"
        found: Json = answer["result"]
        return found

    async def open_address(self, address: str) -> None:
        """Go to an address; what is there comes later."""
        await self.call("Page.navigate", url=address)

    async def evaluate(self, expression: str) -> Any:
        """The value of an expression of JavaScript on the page; of a promise what it comes to."""
        answer = await self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def wait_until(self, condition: str, seconds: float = WAIT_SECONDS) -> None:
        """Wait until an expression of JavaScript is true; it is asked at each change of the page."""
        watched = f"""new Promise((resolve) => {{
            const look = () => {{ if ({condition}) {{ seen.disconnect(); resolve(true); }} }};
            const seen = new MutationObserver(look);
            seen.observe(document, {{subtree: true, childList: true, attributes: true, characterData: true}});
            look();
        }})"""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    # A page that is being loaded takes its promises along.
                    with contextlib.suppress(AssertionError):
                        await self.evaluate(watched)
                        return
        except TimeoutError:
            shown = await self.evaluate("document.body && document.body.innerText")
            raise AssertionError(f"not within {seconds} s: {condition}\n{self.complaints}\n{shown}") from None

    async def text(self, selector: str = "body") -> str:
        """What a person reads there."""
        return str(await self.evaluate(f"document.querySelector({selector!r})?.innerText ?? ''"))

    async def press(self, key: str) -> None:
        """Press a key and let it go."""
        more = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        await self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **more)
        await self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    async def resize(self, width: int, height: int) -> None:
        """Make the window so large."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    async def prefer(self, theme: str) -> None:
        """Have the system prefer light or dark."""
        await self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])

    async def take_picture(self, path: Path) -> None:
        """Keep a screenshot of the whole page."""
        size = (await self.call("Page.getLayoutMetrics"))["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 4000), "scale": 1}
        answer = await self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    async def close(self) -> None:
        """Hear no more."""
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)

    async def _read(self) -> None:
        async for message in self._socket:
            told = message.json()
            if "id" in told:
                answered = self._answers.get(told["id"])
                if answered is not None and not answered.done():
                    answered.set_result(told)
            elif told["method"] == "Runtime.exceptionThrown":
                details = told["params"]["exceptionDetails"]
                self.complaints.append(str(details.get("exception", {}).get("description") or details["text"]))
            elif told["method"] == "Log.entryAdded" and told["params"]["entry"]["level"] in {"error", "warning"}:
                self.complaints.append(str(told["params"]["entry"]["text"]))


@asynccontextmanager
async def open_tab() -> AsyncIterator[Tab]:
    """A browser with a profile of its own, and one page in it; both end with the block."""
    path = chromium_path()
    assert path is not None, "the mark `needs_chromium` skips such a test"
    with tempfile.TemporaryDirectory(prefix="hajob-chromium-", ignore_cleanup_errors=True) as profile:
        environment = os.environ | {"HOME": profile, "XDG_CONFIG_HOME": profile, "XDG_CACHE_HOME": profile}
        process = await asyncio.create_subprocess_exec(
            path,
            *_FLAGS,
            f"--user-data-dir={profile}",
            "about:blank",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
        )
        drain: asyncio.Task[bytes] | None = None
        try:
            assert process.stderr is not None
            async with asyncio.timeout(START_SECONDS):
                while True:
                    line = await process.stderr.readline()
                    assert line, "Chromium has ended before it listened"
                    if found := _LISTENS.search(line):
                        break
            drain = asyncio.create_task(process.stderr.read())
            async with (
                aiohttp.ClientSession() as client,
                client.ws_connect(found[1].decode(), max_msg_size=0) as socket,
            ):
                tab = Tab(socket)
                await tab.attach()
                try:
                    yield tab
                finally:
                    await tab.close()
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
            if drain is not None:
                drain.cancel()
