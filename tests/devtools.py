"""Controls Chromium like a reader, by its DevTools protocol over a pipe: real clicks and keys, several windows."""

import fcntl
import json
import os
import select
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests import browser

# Descriptors by which Chromium reads requests and writes answers.
ASKED, ANSWERED = 3, 4
END = b"\0"
PATIENCE_S = 30


class Driver:
    """A running browser; events: messages that it sent without a request, in order."""

    def __init__(self, asked: int, answered: int) -> None:
        self._asked, self._answered = asked, answered
        self._number, self._unread = 0, b""
        self.events: list[dict[str, Any]] = []

    def ask(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        os.write(self._asked, json.dumps(message | ({"sessionId": session} if session else {})).encode() + END)
        while True:
            said = self._said(PATIENCE_S)
            assert said, f"no answer to {method}"
            if said.get("id") == self._number:
                assert "error" not in said, (method, said["error"])
                return said["result"]
            self.events.append(said)

    def _said(self, seconds: float) -> dict[str, Any] | None:
        deadline = time.monotonic() + seconds
        while END not in self._unread:
            if not select.select([self._answered], [], [], max(0, deadline - time.monotonic()))[0]:
                return None
            read = os.read(self._answered, 1 << 20)
            assert read, "the browser has ended"
            self._unread += read
        first, _, self._unread = self._unread.partition(END)
        return json.loads(first)

    def rest(self, seconds: float) -> None:
        """Wait for a time in seconds, and read events in the meantime."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if said := self._said(left):
                self.events.append(said)

    def opened(self, address: str) -> "Page":
        """Open a window with an address, and return it when the page is loaded."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.ask(f"{domain}.enable")
        page.ask("Page.navigate", url=address)
        page.until("document.readyState === 'complete' && location.href !== 'about:blank'")
        return page


class Page:
    """One window of the browser."""

    def __init__(self, driver: Driver, session: str) -> None:
        self.driver, self.session = driver, session

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method for this window and return its result."""
        return self.driver.ask(method, self.session, **parameters)

    def value(self, expression: str) -> Any:
        """Return the value of a JavaScript expression in the page."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, expression: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not self.value(expression):
            assert time.monotonic() < deadline, f"never: {expression}"
            self.driver.rest(0.05)

    def press(self, key: str, text: str = "") -> None:
        code = {"Tab": 9, "Enter": 13, " ": 32}[key]
        given = {"key": key, "windowsVirtualKeyCode": code}
        self.ask("Input.dispatchKeyEvent", type="keyDown", **given, **({"text": text} if text else {}))
        self.ask("Input.dispatchKeyEvent", type="keyUp", **given)

    def click(self, selector: str) -> None:
        """Click the middle of the element that a selector finds."""
        found = f"document.querySelector({json.dumps(selector)})"
        self.value(f"{found}.scrollIntoView({{block: 'center'}})")
        box = self.value(
            f"(({{x, y, width, height}}) => [x + width / 2, y + height / 2])({found}.getBoundingClientRect())"
        )
        given = {"x": box[0], "y": box[1], "button": "left", "clickCount": 1}
        self.ask("Input.dispatchMouseEvent", type="mousePressed", **given)
        self.ask("Input.dispatchMouseEvent", type="mouseReleased", **given)

    def said(self, *methods: str) -> list[dict[str, Any]]:
        """Return the events of these kinds that belong to this window."""
        events = self.driver.events
        return [one["params"] for one in events if one.get("sessionId") == self.session and one["method"] in methods]

    def requests(self) -> list[str]:
        """Return the addresses that the window requested from the network, in order."""
        return [one["request"]["url"] for one in self.said("Network.requestWillBeSent")]

    def console(self) -> list[dict[str, Any]]:
        """Return messages and errors on the window's console."""
        return self.said("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")


@contextmanager
def driven(folder: Path, more: Sequence[str] = ()) -> Iterator[Driver]:
    """Start a browser, which ends with the body; more: words of its command."""
    (theirs, asked), (answered, written) = os.pipe(), os.pipe()
    # Move the descriptors away from the two numbers that Chromium uses.
    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 10) for descriptor in (theirs, written)]
    words = [*browser.command(folder), "--remote-debugging-pipe", *more, "about:blank"]
    process = subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=(ASKED, ANSWERED),
        preexec_fn=lambda: [os.dup2(here, there) for here, there in zip(high, (ASKED, ANSWERED), strict=True)],
    )  # fmt: skip
    for descriptor in (theirs, written, *high):
        os.close(descriptor)
    driver = Driver(asked, answered)
    try:
        yield driver
        driver.ask("Browser.close")
    finally:
        for descriptor in (asked, answered):
            os.close(descriptor)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
