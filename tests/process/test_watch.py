"""`explore watch`: a page that follows a run, served to this machine only."""

import http.client
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest
from browser import look, needs_chromium
from PIL import Image

from explore._analysis import watch as module
from explore._analysis.report import style
from explore._analysis.report.drawing import Picture, Section
from explore._analysis.watch import Live, once, watch
from explore._storage import files
from explore._storage.episodes_csv import episode_columns
from explore._storage.run_writer import RunWriter
from explore.errors import UserError
from explore.tasks import TaskDescription

COLUMNS = episode_columns()


def add(writer, *episodes):
    row = {"return": 0.5, "length": 3, "steps": 3, "seconds": 0.1}
    writer.add_rows([{"seed": 0, "episode": episode, **row} for episode in episodes])


def begin(folder):
    return RunWriter.create(
        folder,
        name="walk",
        config="",
        task=TaskDescription(name="Walk"),
        columns=COLUMNS,
        seeds=[0],
        episodes=9,
        versions={},
        plugins=[],
        command="explore run",
    )


@pytest.fixture
def writer(tmp_path):
    """A run that is going: its first episode is over."""
    writer = begin(tmp_path / "walk")
    add(writer, 1)
    yield writer
    writer.close()


def told(run):
    """What a page shows, without pictures: the number of episodes that are over."""
    return [Section("So far", [f"{len(run.episodes['episode'])} over"])]


def drawn(run):
    figure, axes = style.new_figure()
    axes.plot(run.episodes["episode"], run.episodes["return"], label="seed 0")
    return [Section("Learning", pictures=[Picture(figure, "1 seed."), Picture(figure, "All of it.", folded=True)])]


@contextmanager
def served(writer, sections=told):
    """The address of a page on a run, served by a thread; as `watch` does but for its end."""
    with module._Server(Live(writer.run.folder, sections), 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()


def ask(address, path="/", method="GET", **headers):
    """The answer of the server, and its body as text."""
    connection = http.client.HTTPConnection(address.removeprefix("http://").rstrip("/"), timeout=30)
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    return answer, answer.read().decode()


@needs_chromium
def test_new_episodes_appear_without_a_reload_until_the_run_is_over(writer, monkeypatch):
    monkeypatch.setattr(module, "REST", 0)

    def going_on(run_read):
        """Each time that the page is drawn, something happens to the run afterwards."""
        sections = told(run_read)
        episode = len(run_read.episodes["episode"])
        if episode < 3:
            add(writer, episode + 1)
        elif run_read.info["status"] == "running":
            writer.finish("done", {})
        return sections

    with served(writer, going_on) as address:
        seen = look(address, wait=30)
    assert "3 over" in seen.text.splitlines()
    assert "The run is over: done." in seen.text.splitlines()
    assert seen.requests == [address, *[f"{address}content"] * 3]  # and no more, though there is time for ten
    assert seen.console == []


@needs_chromium
def test_a_reader_stays_at_the_same_place_and_what_was_unfolded_unfolded(writer, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "REST", 0)

    def going_on(run_read):
        sections = [*told(run_read), *drawn(run_read)]
        if len(run_read.episodes["episode"]) < 3:
            add(writer, len(run_read.episodes["episode"]) + 1)
        return sections

    def seen(name, place=""):
        shot = tmp_path / name
        with served(writer, going_on) as address:
            return look(address + place, wait=9, height=600, screenshot=shot), shot.read_bytes()

    followed, shot = seen("followed.png", "#learning.2")  # Chromium unfolds what an address points to
    assert "3 over" in followed.text.splitlines()
    assert "<details open" in followed.dom
    assert followed.dom.count("<svg") == 2
    _, at_last = seen("last.png", "#learning.2")
    _, at_top = seen("top.png")
    assert shot == at_last != at_top


@needs_chromium
def test_a_page_says_that_nobody_answers_any_more(writer):
    with served(writer) as address:

        def relay():
            """Lets the page through, and nothing after it."""
            with socket.create_server(("127.0.0.1", 0)) as front:
                ports.append(front.getsockname()[1])
                ready.set()
                connection, _ = front.accept()
                with connection:
                    connection.recv(65536)
                    _, text = ask(address)
                    body = text.encode()
                    head = f"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\n\r\n"
                    connection.sendall(head.encode() + body)

        ports, ready = [], threading.Event()
        thread = threading.Thread(target=relay)
        thread.start()
        ready.wait()
        seen = look(f"http://127.0.0.1:{ports[0]}/", wait=9)
        thread.join()
    assert '<p class="notice" role="status">explore watch does not answer any more' in seen.dom
    assert "1 over" in seen.text.splitlines()


def test_only_what_has_changed_is_drawn(writer):
    times = []
    live = Live(writer.run.folder, lambda run: times.append(1) or told(run))
    first = live.now()
    assert live.now() is first
    add(writer, 2)
    live._rested_at = 0
    assert live.now().tag != first.tag
    assert len(times) == 2


def test_drawing_rests_between_changes(writer, monkeypatch):
    """However fast a run is, watching it takes a fifth of a core at most."""
    now = 100.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)

    def slow(run):
        nonlocal now
        now += 2
        return told(run)

    live = Live(writer.run.folder, slow)
    assert "1 over" in live.now().content
    add(writer, 2)
    now += 7.9
    assert "1 over" in live.now().content
    now += 0.2
    assert "2 over" in live.now().content


def test_pages_are_drawn_one_at_a_time(writer):
    inside, most = 0, 0

    def counted(run):
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        add_one.wait(0.2)
        inside -= 1
        return told(run)

    add_one = threading.Event()
    with served(writer, counted) as address:
        readers = [threading.Thread(target=ask, args=(address,)) for _ in range(4)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
    assert most == 1


def test_what_is_known_is_not_sent_again(writer):
    with served(writer) as address:
        first, text = ask(address, "/content")
        again, nothing = ask(address, "/content", If_None_Match=first.headers["ETag"])
    assert (first.status, again.status, nothing) == (200, 304, "")
    assert "1 over" in text


@pytest.mark.parametrize("path", ["/run.json", "/../run.json", "/content/", "/%2e%2e/", "/?", "*"])
def test_other_paths_are_not_found(writer, path):
    with served(writer) as address:
        assert ask(address, path)[0].status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_sent(writer, method):
    with served(writer) as address:
        assert ask(address, method=method)[0].status == 501


def test_a_head_is_a_page_without_its_body(writer):
    with served(writer) as address:
        page, text = ask(address)
        head, nothing = ask(address, method="HEAD")
    assert head.headers["Content-Length"] == page.headers["Content-Length"] == str(len(text.encode()))
    assert nothing == ""


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:80", 200),  # as through a tunnel
        ("localhost", 200),
        ("127.0.0.1:1", 200),
        ("evil.example:80", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost:80:80", 403),
        ("", 403),
    ],
)
def test_another_sites_name_for_this_machine_is_refused(writer, host, status):
    with served(writer) as address:
        for path in ("/", "/content"):
            answer, text = ask(address, path, Host=host)
            assert answer.status == status
            assert ("1 over" in text) == (status == 200)


def test_only_this_machine_is_served(writer):
    with module._Server(Live(writer.run.folder, told), 0) as server:
        assert server.socket.getsockname()[0] == "127.0.0.1"


def test_a_run_without_episodes_is_said_to_have_none(tmp_path):
    writer = begin(tmp_path / "walk")
    assert "No episode is over" in Live(writer.run.folder, told).now().content
    with pytest.raises(UserError, match="no picture of"):
        once(writer.run.folder, tmp_path / "walk.png", drawn)
    assert not (tmp_path / "walk.png").exists()
    writer.close()


def test_a_damaged_run_is_said_to_be_and_followed_on(writer):
    live = Live(writer.run.folder, told)
    whole = (writer.run.folder / "run.json").read_text()
    for damage, complaint in [
        ("{", "is damaged"),
        (whole.replace('"seeds"', '"sheep"'), "seeds is"),
        (whole, "1 over"),
    ]:
        (writer.run.folder / "run.json").write_text(damage)
        live._rested_at = 0
        assert complaint in live.now().content
        assert not live.now().over


def test_a_run_that_vanishes_and_comes_back_is_followed_on(writer, tmp_path):
    with served(writer) as address:
        assert "1 over" in ask(address)[1]
        shutil.move(writer.run.folder, tmp_path / "away")
        assert "there is no run folder" in _soon(address, "there is no run folder")
        shutil.move(tmp_path / "away", writer.run.folder)
        assert "1 over" in _soon(address, "1 over")


def _soon(address, text):
    """The page when it has come to hold a text: drawing rests for a moment."""
    for _ in range(500):
        shown = ask(address)[1]
        if text in shown:
            break
        threading.Event().wait(0.01)
    return shown


def test_a_bug_is_shown_and_does_not_end_the_server(writer):
    def broken(run):
        raise ZeroDivisionError("<b>")

    with served(writer, broken) as address:
        for _ in range(2):
            assert "internal error: ZeroDivisionError: &lt;b&gt;" in ask(address)[1]


@pytest.mark.parametrize(
    ("status", "reason", "said"),
    [
        ("done", None, "The run is over: done."),
        ("failed", "a loss is <NaN>", "The run is over: failed (a loss is &lt;NaN&gt;)."),
    ],
)
def test_a_run_that_is_over_is_said_to_be_and_its_page_asks_no_more(writer, status, reason, said):
    writer.finish(status, {}, reason)
    with served(writer) as address:
        page, text = ask(address)
        part, _ = ask(address, "/content")
    assert said in text
    assert "<script" not in text
    assert page.headers["X-Run-Over"] == part.headers["X-Run-Over"] == "yes"


def test_a_killed_run_is_not_said_to_be_going_on(writer):
    live = Live(writer.run.folder, told)
    assert "is going on" in live.now().content
    writer.close()  # the system frees the lock of a process that is killed
    live._rested_at = 0
    assert f"explore resume {writer.run.folder}" in live.now().content


def test_a_run_that_ends_while_it_is_drawn_is_not_taken_for_a_killed_one(writer, monkeypatch):
    monkeypatch.setattr(module, "REST", 0)

    def ending(run_read):
        if run_read.info["status"] == "running":
            writer.finish("done", {})
            writer.close()
        return told(run_read)

    live = Live(writer.run.folder, ending)
    assert [(shown.over, "done" in shown.content) for shown in (live.now(), live.now())] == [
        (False, False),
        (True, True),
    ]


def test_a_run_that_ends_while_it_is_opened_is_not_taken_for_a_killed_one(writer, monkeypatch):
    def ended(folder):
        monkeypatch.undo()
        writer.finish("done", {})
        writer.close()
        return False

    live = Live(writer.run.folder, told)
    state = module._state(writer.run.folder)
    monkeypatch.setattr(module, "_state", lambda folder: state)
    monkeypatch.setattr(files, "is_locked", ended)
    assert "The run is over: done." in live.now().content


def test_a_folder_without_a_run_is_a_mistake_before_anything_is_served(tmp_path, capsys):
    with pytest.raises(UserError, match="not the folder of a run"):
        watch(tmp_path)
    assert capsys.readouterr().out == ""


def test_a_port_that_cannot_be_had_is_a_mistake(writer):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for wrong in (port, 65536):
            with pytest.raises(UserError, match=f"cannot serve at port {wrong}: .*; choose another"):
                watch(writer.run.folder, wrong)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_well(writer, number):
    code = f"from explore._analysis.watch import watch; watch({str(writer.run.folder)!r})"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        line = process.stdout.readline()
        address = re.fullmatch(rf"watching {writer.run.folder} at (http://127\.0\.0\.1:\d+/) \(Ctrl-C ends\)\n", line)[
            1
        ]
        assert "Learning" in ask(address)[1]  # as in a report
        os.kill(process.pid, number)
        rest, errors = process.communicate(timeout=60)
    assert (process.returncode, rest, errors) == (0, "", "")


def test_once_is_a_picture(writer, tmp_path):
    out = tmp_path / "walk.png"
    assert once(writer.run.folder, out, drawn) == out
    assert Image.open(out).width > 900
    with pytest.raises(UserError, match=r"cannot write .*nowhere"):
        once(writer.run.folder, tmp_path / "nowhere" / "walk.png", drawn)


def test_once_does_without_what_is_folded(writer, tmp_path):
    def only(folded):
        figure, _ = style.new_figure()
        return lambda run: [Section("Learning", pictures=[Picture(figure, "1 seed."), Picture(figure, "", folded)])]

    heights = [
        Image.open(once(writer.run.folder, tmp_path / "walk.png", only(folded))).height for folded in (True, False)
    ]
    assert heights[1] > 1.5 * heights[0]
