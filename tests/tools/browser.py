"""A headless Chromium for tests of pages, driven by its DevTools protocol over a pipe."""
import base64
import contextlib
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which(
    "google-chrome")
# An expression that is true once the page of reelmesh-report has drawn its timeline.
DRAWN = "document.documentElement.dataset.timeline === 'drawn'"


class Browser:
    """One tab. `errors` has what the page writes to its console as errors, exceptions, and what it
    tries to load but may not or cannot."""

    def __init__(self):
        self._profile = tempfile.mkdtemp(prefix="reelmesh_browser_")
        self._id, self._session, self._read = 0, None, b""
        self.errors, self.requests = [], []
        commands, ours = os.pipe()
        theirs, answers = os.pipe()
        # The browser reads commands from descriptor 3 and writes answers to 4.
        words = [PROGRAM, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
                 "--disable-extensions", "--disable-background-networking", "--hide-scrollbars",
                 f"--user-data-dir={self._profile}", "--remote-debugging-pipe", "about:blank"]
        # Moved away first, as one of them may be 3 or 4 itself.
        shell = ('exec {in}<&"$0" {out}>&"$1"; shift; exec 3<&"$in" 4>&"$out" {in}<&- {out}>&-; '
                 'exec "$@"')
        self._process = subprocess.Popen(
            ["bash", "-c", shell, str(commands), str(answers), *words],
            pass_fds=(commands, answers), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=os.environ | {"TMPDIR": self._profile})  # a killed browser leaves a socket there
        os.close(commands)
        os.close(answers)
        self._out, self._in = ours, theirs
        target = next(one for one in self.call("Target.getTargets")["targetInfos"]
                      if one["type"] == "page")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target,
                                  flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self):
        self._process.kill()
        self._process.wait()
        os.close(self._out)
        os.close(self._in)
        shutil.rmtree(self._profile, ignore_errors=True)

    def call(self, method, timeout=60, **parameters):
        self._id += 1
        message = {"id": self._id, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + timeout
        while True:
            answer = self._receive(end - time.monotonic(), method)
            if answer.get("id") == self._id:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _receive(self, timeout, what):
        while b"\0" not in self._read:
            if not select.select([self._in], [], [], max(0, timeout))[0]:
                raise TimeoutError(f"the browser gives no answer to {what}")
            piece = os.read(self._in, 1 << 20)
            if not piece:
                raise RuntimeError(f"the browser ended during {what}")
            self._read += piece
        answer, self._read = self._read.split(b"\0", 1)
        answer = json.loads(answer)
        self._note(answer.get("method"), answer.get("params", {}))
        return answer

    def _note(self, method, values):
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(values["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and values["type"] in ("error", "assert"):
            self.errors.append(json.dumps(values["args"]))
        elif method == "Log.entryAdded" and values["entry"]["level"] == "error":
            self.errors.append(json.dumps(values["entry"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])

    def evaluate(self, expression, timeout=60):
        """The value of a JavaScript expression; promises are waited for."""
        found = self.call("Runtime.evaluate", timeout, expression=expression, returnByValue=True,
                          awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(json.dumps(found["exceptionDetails"]))
        return found["result"].get("value")

    def open(self, path, until="true", timeout=60):
        """Opens a file and waits until the expression is true. Returns seconds."""
        begin = time.monotonic()
        self.errors, self.requests = [], []
        self.call("Page.navigate", url=pathlib.Path(path).resolve().as_uri())
        self.wait(f"document.readyState === 'complete' && ({until})", timeout)
        return time.monotonic() - begin

    def wait(self, expression, timeout=60):
        end = time.monotonic() + timeout
        while not self.evaluate(expression, timeout):
            if time.monotonic() > end:
                raise TimeoutError(f"not true within {timeout} s: {expression}")
            time.sleep(0.02)

    def screen(self, width, height=900, scale=1, dark=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=scale, mobile=width < 500)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def pixels(self, clip=None):
        """A PNG of the part of the page {x, y, width, height, scale}, else of what is in view."""
        part = {"clip": clip} if clip else {}
        return base64.b64decode(self.call("Page.captureScreenshot", 120, format="png",
                                          captureBeyondViewport=clip is not None, **part)["data"])

    def picture(self, path):
        """Writes a PNG of the whole page."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        pathlib.Path(path).write_bytes(self.pixels({**size, "scale": 1}))


@contextlib.contextmanager
def browser():
    opened = Browser()
    try:
        yield opened
    finally:
        opened.close()
