"""A headless Chromium, spoken to over its debugging pipe: no driver and no package is needed."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
FOUND = next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One tab. `call` sends a command of the DevTools protocol and waits for its result."""

    def __init__(self, profile: Path) -> None:
        assert FOUND is not None
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        self.reading, self.writing = os.fdopen(ours_in, "rb"), os.fdopen(ours_out, "wb")
        self.buffer, self.count, self.events = b"", 0, []  # type: ignore[var-annotated]

        def as_three_and_four() -> None:
            source, sink = os.dup(theirs_in), os.dup(theirs_out)
            os.dup2(source, 3)
            os.dup2(sink, 4)

        words = [FOUND, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
        words += [f"--user-data-dir={profile}", "--disable-dev-shm-usage", "about:blank"]
        self.process = subprocess.Popen(
            words,
            preexec_fn=as_three_and_four,
            close_fds=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.session: str | None = None
        pages = self.call("Target.getTargets")["targetInfos"]
        page = next(one for one in pages if one["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self.count += 1
        number = self.count
        message = {"id": number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        self.writing.write(json.dumps(message).encode() + b"\0")
        self.writing.flush()
        while (answer := self._next()).get("id") != number:
            self.events.append(answer)
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self.buffer:
            chunk = os.read(self.reading.fileno(), 2**20)
            assert chunk, "the browser has gone"
            self.buffer += chunk
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def open(self, file: Path, *, width: int, height: int, dark: bool = False) -> None:
        """Load a page from disk at this size, as a phone or a screen would show it."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1}
        self.call("Emulation.setDeviceMetricsOverride", mobile=width < 600, **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.call("Page.navigate", url=file.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def value(self, expression: str) -> Any:
        """The value of a JavaScript expression; a promise is awaited."""
        result = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def errors(self) -> list[dict[str, Any]]:
        """Exceptions, and what the browser logged as errors, since the page was opened."""
        logged = [e for e in self.events if e.get("method") == "Log.entryAdded"]
        bad = [e for e in logged if e["params"]["entry"]["level"] == "error"]
        return bad + [e for e in self.events if e.get("method") == "Runtime.exceptionThrown"]

    def requested(self) -> list[str]:
        """Every address requested since the page was opened."""
        sent = [e for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    def screenshot(self, file: Path, **clip: float) -> None:
        options: dict[str, Any] = {"format": "png", "captureBeyondViewport": True}
        if clip:
            options["clip"] = {"scale": 1, **clip}
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", **options)["data"]))

    def close(self) -> None:
        try:
            self.session = None
            self.call("Browser.close")
            self.process.wait(10)
        except (AssertionError, BrokenPipeError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        self.reading.close()
        self.writing.close()
