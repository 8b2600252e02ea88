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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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

SCRIPT = """
let tag = TAG;
const main = document.querySelector("main");
const notice = document.body.appendChild(document.createElement("p"));
notice.className = "notice";
notice.hidden = true;
notice.setAttribute("role", "status");

function show(text) {
  const open = [...main.querySelectorAll("details[open] figure")].map(one => one.id);
  const [x, y] = [scrollX, scrollY];
  main.innerHTML = text;
  for (const id of open) document.getElementById(id)?.closest("details")?.setAttribute("open", "");
  scrollTo(x, y);
}

async function ask() {
  let over = false;
  try {
    const answer = await fetch("/content", {headers: {"If-None-Match": tag}});
    if (answer.status === 200) {
      show(await answer.text());
      tag = answer.headers.get("ETag");
    }
    over = answer.headers.has("X-Run-Over");
    notice.hidden = true;
  } catch {
    notice.textContent = "explore watch does not answer any more; this is the last it said.";
    notice.hidden = false;
  }
  if (!over) setTimeout(ask, 2000);
}
setTimeout(ask, 2000);
"""


def watch(
    folder: str | Path,
    port: int = 0,
    open_page: Callable[[str], Any] | None = None,
    sections: Sections = sections_of_run,
) -> None:
    """Serves the page of a run until Ctrl-C or SIGTERM; raises `UserError` if there is no run in the folder.

    Port 0 is any free one. `open_page` is called with the address, `sections` with the run whenever it has changed.
    """
    folder = Path(folder)
    Run.open(folder)
    with _Server(Live(folder, sections), port) as server, _terminable():
        address = f"http://127.0.0.1:{server.server_address[1]}/"
        print(f"watching {printable(str(folder))} at {address} (Ctrl-C ends)", flush=True)
        if open_page:
            open_page(address)
        server.serve_forever()


def once(folder: str | Path, out: str | Path, sections: Sections = sections_of_run) -> Path:
    """Writes the pictures of a run as they are now, but for folded ones, to a PNG; raises `UserError`."""
    if Path(out).exists() and Path(out).suffix != ".png":
        raise UserError(f"{out} exists, and is no picture; say which file to write, such as watch.png")
    out = Path(out)
    run, status = _opened(Path(folder))
    shown = [picture for section in _sections(run, sections) for picture in section.pictures]
    pictures = [picture for picture in shown if not picture.folded]
    if not pictures:
        raise UserError(f"there is no picture of {folder} yet: it has no episodes that could be drawn")
    try:
        files.write(out, png(pictures, f"{_title(run.folder)}: {_said(run, status)}"))
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
        return f'"{hashlib.sha256(self.content.encode()).hexdigest()[:32]}"'


class Live:
    """A run that may be going on. `now` is drawn anew when its files have changed and the last drawing has rested."""

    def __init__(self, folder: Path, sections: Sections):
        self.folder, self.title = folder, _title(folder)
        self._sections = sections
        self._turn = threading.Lock()
        self._state: Any = None
        self._rested_at = 0.0
        self._shown = Shown("")

    def now(self) -> Shown:
        with self._turn:
            state = _state(self.folder)
            if state != self._state and time.monotonic() >= self._rested_at:
                begun = time.monotonic()
                self._shown, self._state = self._draw(), state
                self._rested_at = time.monotonic() + REST * (time.monotonic() - begun)
            return self._shown

    def _draw(self) -> Shown:
        try:
            run, status = _opened(self.folder)
            sections = _sections(run, self._sections)
            over = status not in ("running", "killed")  # whoever was killed may be resumed
            return Shown(content(self.title, sections, subtitle=_said(run, status)), over)
        except UserError as error:
            wrong = str(error)
        except Exception as error:  # whatever it is, it may be mended while we watch
            wrong = f"internal error: {type(error).__name__}: {error} (a bug in explore)"
        return Shown(content(self.title, [Section("The run cannot be shown", [wrong])]))


def _sections(run: Run, sections: Sections) -> list[Section]:
    if not len(run.episodes["episode"]):
        return [Section("Nothing to see yet", ["No episode is over."])]
    return sections(run)


def _title(folder: Path) -> str:
    return folder.resolve().name


def _opened(folder: Path) -> tuple[Run, str]:
    """A run and its status before anything else is read: while we draw, it may end."""
    run = Run.open(folder)
    if run.status == "killed":  # unless it ended properly just after `run.json` was read
        run = Run.open(folder)
    return run, run.status


def _said(run: Run, status: str) -> str:
    if status == "running":
        return "The run is going on."
    if status == "killed":
        return f"Nobody runs it any more, though it did not end. Go on with it: explore run --resume {run.folder}"
    reason = run.info.get("reason")
    return f"The run is over: {status}{f' ({reason})' if reason else ''}."


def _state(folder: Path) -> Any:
    """Differs if what there is to see may differ."""
    return [_stamp(folder / name) for name in WATCHED], files.is_locked(folder)


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


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
            self.send_error(HTTPStatus.FORBIDDEN)
        elif self.path == "/":
            shown = self.server.live.now()
            script = "" if shown.over else SCRIPT.replace("TAG", json.dumps(shown.tag))
            self._answer(document(self.server.live.title, shown.content, script), shown)
        elif self.path == "/content":
            shown = self.server.live.now()
            self._answer(shown.content, shown)
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    do_HEAD = do_GET  # noqa: N815

    def _answer(self, text: str, shown: Shown) -> None:
        known = self.path == "/content" and self.headers.get("If-None-Match") == shown.tag
        body = b"" if known else text.encode()
        self.send_response(HTTPStatus.NOT_MODIFIED if known else HTTPStatus.OK)
        self.send_header("ETag", shown.tag)
        if shown.over:
            self.send_header("X-Run-Over", "yes")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Says nothing: the terminal is the user's."""


@contextmanager
def _terminable() -> Iterator[None]:
    """Ctrl-C and SIGTERM are how this is meant to end."""
    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, signal.default_int_handler) if main else None
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        if main:
            signal.signal(signal.SIGTERM, before)
