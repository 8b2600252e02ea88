"""What a reader of a page sees: headless Chromium, driven by its command line.

`look` tells every request that a page makes, as Chromium's own log of the network has them. Chromium
asks for things of its own, too (the time, accounts); a request of a page is one whose initiator is an
origin. What it wants of its makers' hosts is refused, so that tests do not depend on the network.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (Debian's package chromium)")

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
    "--host-resolver-rules=MAP *.google.com ~NOTFOUND, MAP *.googleapis.com ~NOTFOUND, MAP *.gvt1.com ~NOTFOUND",
    "--enable-logging=stderr",
    "--net-log-capture-mode=Everything",
)
CONSOLE = re.compile(r'CONSOLE:\d+\] "(.*)", source: ')


@dataclass
class Seen:
    dom: str  # as it is after all scripts
    text: str  # of the body, one line per piece
    requests: list[str]  # addresses that the page asked for, itself included unless it is a file; hosts looked up
    console: list[str]  # what is said to developers: errors, and what the page's policy forbade


def look(
    address: str,
    *,
    dark: bool = False,
    width: int = 1200,
    height: int = 800,
    screenshot: Path | None = None,
    pdf: Path | None = None,
    wait: float = 3,
) -> Seen:
    """Opens a page and looks at it after `wait` seconds of its own time, which passes as fast as it can."""
    assert CHROMIUM
    with tempfile.TemporaryDirectory() as profile:
        log = Path(profile, "net.json")
        command = [
            CHROMIUM,
            *FLAGS,
            f"--user-data-dir={profile}/profile",
            f"--log-net-log={log}",
            f"--window-size={width},{height}",
            f"--virtual-time-budget={wait * 1000:.0f}",
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
            *([f"--screenshot={screenshot}"] if screenshot else []),
            *([f"--print-to-pdf={pdf}", "--no-pdf-header-footer"] if pdf else []),
            "--dump-dom",
            address,
        ]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert ended.returncode == 0, ended.stderr
        requests = _requests(json.loads(log.read_text()), address)
    return Seen(ended.stdout, _text(ended.stdout), requests, CONSOLE.findall(ended.stderr))


def _requests(log: dict, address: str) -> list[str]:
    kinds = {number: name for name, number in log["constants"]["logEventTypes"].items()}
    asked = []
    for event in log["events"]:
        kind, params = kinds[event["type"]], event.get("params", {})
        if kind == "URL_REQUEST_START_JOB" and "url" in params:
            if params["initiator"] != "not an origin" or params["url"] == address.partition("#")[0]:
                asked.append(params["url"])
        elif kind == "HOST_RESOLVER_MANAGER_REQUEST" and "host" in params:
            name = urlsplit(params["host"]).hostname or params["host"]
            if name not in ("127.0.0.1", "localhost", "~notfound"):
                asked.append(params["host"])
    return asked


class _Words(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.within: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag in ("script", "style", "head"):
            self.within.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.within and self.within[-1] == tag:
            self.within.pop()

    def handle_data(self, data: str) -> None:
        if not self.within and data.strip():
            self.words.append(data.strip())


def _text(dom: str) -> str:
    parser = _Words()
    parser.feed(dom)
    return "\n".join(parser.words)
