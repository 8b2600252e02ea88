"""A run while it is going: the pictures of its report, on a page that this process serves to this machine only.

The page asks every two seconds whether there is something new. A run's files are read and drawn when
they have changed, by one thread at a time, and then rest for some time, so that watching takes little from
the run that is watched. No request names a file.
"""

from __future__ import annotations

import hashlib
import json
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from explore._analysis.report import sections_of_run
from explore._analysis.report.drawing import Section
from explore._analysis.report.page import content, document
from explore._analysis.report.style import png
from explore._messages import printable
from explore._storage import files
from explore._storage.run_folder import Run
from explore.errors import UserError

Sections = Callable[[Run], list[Section]]

WATCHED = ("run.json", "episodes.csv", "summary.json", "config.gin", "snapshots")
REST = 4
"""So many times as long as the last drawing took there is no other: at most a fifth of a core is used."""
HOSTS = ("127.0.0.1", "localhost")
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Type": "text/html; charset=utf-8",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

SCRIPT = Path(__file__).with_name("watch.js").read_text(encoding="utf-8")


def watch(folder: str | Path, port: int = 0) -> None:
    """Serves the page of a run until Ctrl-C or SIGTERM; raises `UserError` if there is no run in the folder.

    Port 0 is any free one.
    """
    folder = Path(folder)
    Run.open(folder)
    with _Server(Live(folder), port) as server:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        address = f"http://127.0.0.1:{server.server_address[1]}/"
        print(f"watching {printable(str(folder))} at {address} (Ctrl-C ends)", flush=True)
        with suppress(KeyboardInterrupt):
            server.serve_forever()


def once(folder: str | Path, out: str | Path, sections: Sections = sections_of_run) -> Path:
    """Writes the pictures of a run as they are now, but for folded ones, to a PNG; raises `UserError`."""
    out = Path(out)
    if out.exists() and out.suffix != ".png":
        raise UserError(f"{out} exists, and is no picture; say which file to write, such as watch.png")
    run, status = _open(Path(folder))
    pictures = [one for section in _draw(run, sections) for one in section.pictures if not one.folded]
    if not pictures:
        raise UserError(f"there is no picture of {folder} yet: it has no episodes that could be drawn")
    try:
        files.write(out, png(pictures, f"{run.folder.resolve().name}: {_describe(run, status)}"))
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror}") from error
    return out


@dataclass(frozen=True)
class Shown:
    """What the page shows at some moment."""

    content: str
    over: bool = False  # nothing more will come

    @property
    def tag(self) -> str:
        """Differs if the content does."""
        return f'"{hashlib.sha256(self.content.encode()).hexdigest()[:32]}"'


class Live:
    """A run that may be going on. `now` is drawn anew when its files have changed and the last drawing has rested."""

    def __init__(self, folder: Path, sections: Sections = sections_of_run):
        self.folder, self.title, self._sections = folder, folder.resolve().name, sections
        self._turn = threading.Lock()
        self._state: Any = None
        self._rested_at = 0.0
        self._shown = Shown("")

    def now(self) -> Shown:
        """What the page shows, drawn by one thread at a time."""
        with self._turn:
            state = _state(self.folder)
            if state != self._state and time.monotonic() >= self._rested_at:
                begun = time.monotonic()
                self._shown, self._state = self._show(), state
                self._rested_at = time.monotonic() + REST * (time.monotonic() - begun)
            return self._shown

    def _show(self) -> Shown:
        try:
            run, status = _open(self.folder)
            shown = content(self.title, _draw(run, self._sections), subtitle=_describe(run, status))
            return Shown(shown, over=status not in ("running", "killed"))  # a run that was killed may be resumed
        except UserError as error:
            wrong = str(error)
        except Exception as error:  # whatever it is, it may be mended while we watch
            wrong = f"internal error: {type(error).__name__}: {error} (a bug in explore)"
        return Shown(content(self.title, [Section("The run cannot be shown", [wrong])]))


def _draw(run: Run, sections: Sections) -> list[Section]:
    if not len(run.episodes["episode"]):
        return [Section("Nothing to see yet", ["No episode is over."])]
    return sections(run)


def _open(folder: Path) -> tuple[Run, str]:
    """A run and its status before anything else is read: while we draw, it may end."""
    run = Run.open(folder)
    if run.status == "killed":  # unless it ended properly just after `run.json` was read
        run = Run.open(folder)
    return run, run.status


def _describe(run: Run, status: str) -> str:
    if status == "running":
        return "The run is going on."
    if status == "killed":
        return f"Its process has ended before the run was done. To resume it: explore resume {run.folder}"
    reason = run.info.get("reason")
    return f"The run is over: {status}{f' ({reason})' if reason else ''}."


def _state(folder: Path) -> Any:
    """Differs if what there is to see may differ."""
    found = {}
    for name in WATCHED:
        with suppress(OSError):  # it is not there yet, or just being replaced
            status = (folder / name).stat()
            found[name] = status.st_mtime_ns, status.st_size
    return found, files.is_locked(folder)


class _Server(ThreadingHTTPServer):
    def __init__(self, live: Live, port: int):
        self.live = live
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UserError(f"cannot serve at port {port}: {reason}; choose another, or 0 for any") from error

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # which is a reader who left
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 30  # seconds for a reader to say what is wanted

    def do_GET(self) -> None:
        if self.headers.get("Host", "").rsplit(":", 1)[0] not in HOSTS:  # another site's name for our address
            return self.send_error(HTTPStatus.FORBIDDEN)
        if self.path not in ("/", "/content"):
            return self.send_error(HTTPStatus.NOT_FOUND)
        shown = self.server.live.now()
        text, known = shown.content, self.headers.get("If-None-Match") == shown.tag
        if self.path == "/":
            script = "" if shown.over else SCRIPT.replace("TAG", json.dumps(shown.tag))
            text, known = document(self.server.live.title, text, script), False
        body = b"" if known else text.encode()
        self.send_response(HTTPStatus.NOT_MODIFIED if known else HTTPStatus.OK)
        headers = {"ETag": shown.tag, "Content-Length": str(len(body))} | ({"X-Run-Over": "yes"} if shown.over else {})
        for name, value in (headers | HEADERS).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, format: str, *arguments: Any) -> None:
        """Says nothing: the terminal is the user's."""
