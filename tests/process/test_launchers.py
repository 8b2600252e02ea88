"""Launchers: the built-in ones and a third party's run the same cells to the same bytes; Ray's survives lost nodes."""

import importlib.util
import inspect
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pytest
from explore_plugins.local_launcher import Local
from explore_plugins.ray_launcher import Ray
from sweeping import SIZES, TINY, bound, results, start, varied, write_plugin

import explore
from explore._cli.main import main
from explore._storage.run_folder import Run
from explore.interfaces import Launcher, News, Task
from explore.testing import check_launcher

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def task(*words, name="one"):
    return Task(name, words, Path(name))


def launched(launcher, *tasks, asked_to_stop=lambda: False):
    return list(launcher.launch(tasks, asked_to_stop))


# Any launcher


def test_the_example_of_the_base_class_runs_a_sweep(folder, capsys, forked_cells):
    example = textwrap.dedent(inspect.getdoc(Launcher).split("Example:\n")[1])
    hook = "@explore.hookimpl\ndef explore_launchers():\n    return [OneByOne]"
    imports = "import subprocess\nimport sys\n\nimport explore\nfrom explore.interfaces import *\n"
    (folder / "mine.py").write_text(f"{imports}\n{example}\n\n{hook}\n")
    assert start(*varied(SIZES), "-p", "mine.py", "--launcher", "onebyone", out="mine") == 0
    assert start(*varied(SIZES), "--quiet", out="local") == 0
    assert results(folder / "mine" / "size=5") == results(folder / "local" / "size=5")


def test_a_launcher_gets_its_parameters_from_bindings_that_the_cells_do_not_see(folder, capsys):
    write_plugin(
        "cluster.py",
        """
        from explore import hookimpl
        from explore.interfaces import Launcher, News

        class Cluster(Launcher):
            def __init__(self, partition: str, nodes: int = 1):
                self.partition, self.nodes = partition, nodes

            def launch(self, tasks, asked_to_stop):
                for task in tasks:
                    assert not any("partition" in word for word in task.words)
                    yield News(task, 1, f"explore: error: {self.partition} has {self.nodes} nodes")

        @hookimpl
        def explore_launchers():
            return [Cluster]
        """,
    )
    words = ["-p", "cluster.py", "--launcher", "cluster"]
    assert start(*words, *bound("launcher.Cluster.partition = 'small'", "launcher.Cluster.nodes = 3")) == 3
    assert "failed: pins_deep_sea  small has 3 nodes" in capsys.readouterr().err
    assert "small" not in (folder / "out" / "sweep.toml").read_text()
    assert start(*words, *bound("launcher.Cluster.nods = 3")) == 2
    assert "launcher.Cluster has no parameter 'nods'; did you mean 'nodes'?" in capsys.readouterr().err
    assert start(*words) == 2
    assert "launcher.Cluster.partition has no value; bind it" in capsys.readouterr().err


def test_an_error_in_a_launcher_is_reported_with_its_line(capsys):
    write_plugin(
        "broken.py",
        """
        from explore import hookimpl
        from explore.interfaces import Launcher

        class Broken(Launcher):
            def launch(self, tasks, asked_to_stop):
                yield tasks[99]

        @hookimpl
        def explore_launchers():
            return [Broken]
        """,
    )
    assert start("-p", "broken.py", "--launcher", "Broken") == 1
    assert "launcher.Broken of plugin broken raises IndexError" in capsys.readouterr().err


# Processes of this machine


def test_the_local_launcher_reports_exit_codes_and_stderr():
    one = task("plugins")
    wrong = task("describe", "prior.Aditive", name="wrong")
    first, begun, second, told = sorted(launched(Local(jobs=1), one, wrong), key=lambda news: news.task.name)
    assert (first, begun.code) == (News(one), 0)
    assert (second, told.code) == (News(wrong), 2)
    assert "did you mean 'prior.Additive'?" in told.text


def test_no_more_jobs_run_at_a_time_than_are_asked_for():
    running = most = 0
    for news in Local(jobs=2).launch([task("--version", name=str(n)) for n in range(4)], lambda: False):
        running += 1 if news.code is None else -1
        most = max(most, running)
    assert (running, most) == (0, 2)


def test_a_sweep_asked_to_stop_before_it_begins_starts_nothing():
    assert launched(Local(), task("--version"), asked_to_stop=lambda: True) == []


def test_nothing_is_left_running_when_the_sweep_breaks_off(folder):
    write_plugin(
        "stuck.py",
        """
        import os
        import signal

        with open("pid", "w") as pipe:
            pipe.write(str(os.getpid()))
        signal.pause()
        """,
    )
    os.mkfifo("pid")
    news = Local().launch([task("plugins", "-p", "stuck.py")], lambda: False)
    next(news)
    pid = int(Path("pid").read_text())
    news.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_fewer_than_one_job_are_refused():
    with pytest.raises(ValueError, match="jobs must be at least 1, got 0"):
        Local(jobs=0)


# Ray


def test_without_ray_the_error_says_what_to_install(folder, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert start("--launcher", "ray") == 2
    assert "launcher.Ray needs Ray, which is not installed: pip install 'explore-rl[ray]'" in capsys.readouterr().err
    assert not (folder / "out").exists()


@pytest.fixture
def ray_folder(monkeypatch):
    """A folder for Ray's own files, with a short name as there are sockets in it."""
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as name:
        monkeypatch.setenv("RAY_TMPDIR", name)
        monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        yield name


def processes(word):
    """Those with a word in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [path.parent.name] if word.encode() in path.read_bytes() else []
        except OSError:  # it has just ended
            continue
    return found


@needs_ray
def test_ray_keeps_every_promise_of_a_launcher(ray_folder):
    check_launcher(Ray, jobs=2)


class RayThatMissesCancels:
    """Cancels a task when it is asked the third time."""

    asked = 0
    exceptions = None

    def cancel(self, reference, **_):
        self.asked += 1

    def wait(self, references, **_):
        return (references, []) if self.asked == 3 else ([], references)

    def get(self, reference):
        return 130, ""


@needs_ray
def test_a_task_that_ray_fails_to_cancel_is_cancelled_again(folder, monkeypatch):
    launcher, one = Ray(), task()
    monkeypatch.setattr(launcher, "ray", RayThatMissesCancels())
    assert list(launcher._follow({"reference": one}, lambda: True)) == [News(one, 130, "")]


@needs_ray
def test_jobs_are_refused_for_a_running_cluster(capsys):
    assert start("--launcher", "ray", "--address", "localhost:1", "--jobs", "2") == 2
    assert "the one at the address has its own CPUs" in capsys.readouterr().err


@needs_ray
def test_a_sweep_on_ray_that_is_stopped_saves_its_cells_and_leaves_no_ray_behind(folder, ray_folder):
    write_plugin(
        "stopping.py",
        """
        import os
        import signal
        from pathlib import Path

        from explore import hookimpl

        @hookimpl
        def explore_episode_finished(run, rows):
            if rows[0]["episode"] == 3:
                sweep = (run.folder.parent / ".lock").read_text().split()[0]
                os.kill(int(sweep), signal.SIGINT)
        """,
    )
    words = ["--launcher", "ray", "-p", "stopping.py", *bound(*TINY, "experiment.episodes = 1000000")]
    command = [sys.executable, "-m", "explore", "sweep", "pins_deep_sea", *words, "--out", "out"]
    stopped = subprocess.run(command, capture_output=True, text=True)
    assert stopped.returncode == 130, stopped.stderr
    assert "to resume: explore sweep out/sweep.toml --launcher ray" in stopped.stderr
    assert stopped.stdout.splitlines()[0] == "[0/1] pins_deep_sea: running"
    assert Run.open(folder / "out" / "pins_deep_sea").status == "interrupted"
    end = time.monotonic() + 20
    while processes(ray_folder) and time.monotonic() < end:
        time.sleep(0.1)
    assert processes(ray_folder) == []


@needs_ray
def test_cells_of_a_lost_node_go_on_elsewhere_to_the_bytes_of_the_local_launcher(
    folder, ray_folder, monkeypatch, forked_cells
):
    """What runs on the doomed node waits at episode 30 for its end; the checkpoint is that of episode 20."""
    before = signal.getsignal(signal.SIGTERM)
    from ray.cluster_utils import Cluster

    write_plugin(
        "doomed.py",
        """
        import time
        from pathlib import Path

        import ray

        from explore import hookimpl

        @hookimpl
        def explore_episode_finished(run, rows):
            if rows[0]["episode"] == 30:
                here, folder = ray.get_runtime_context().get_node_id(), run.folder.parent.parent
                while (folder / "doomed").read_text() == here:
                    (folder / "stuck").touch()
                    time.sleep(0.1)
        """,
    )
    options = {
        "vary": ["environment.DeepSea.size = [4, 5, 6]"],
        "bindings": [*TINY, "experiment.episodes = 40", "experiment.checkpoint_every = 10"],
        "seeds": range(2),
        "quiet": True,
    }
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        nodes = [cluster.add_node(num_cpus=1)]
        (folder / "doomed").write_text(nodes[0].node_id)
        launch = Ray.launch

        def losing(self, tasks, asked_to_stop):
            def asked():
                if nodes and (folder / "stuck").exists():
                    cluster.remove_node(nodes.pop(), allow_graceful=False)
                return asked_to_stop()

            return launch(self, tasks, asked)

        monkeypatch.setattr(Ray, "launch", losing)
        address = cluster.address
        on_ray = explore.sweep(
            "pins_deep_sea", out="ray", launcher="ray", address=address, plugins=["doomed.py"], **options
        )
    finally:
        cluster.shutdown()
        signal.signal(signal.SIGTERM, before)
    assert not nodes
    resumed = [json.loads((run.folder / "run.json").read_text())["resumed"] for run in on_ray.values()]
    assert [entry["after_episode"] for entries in resumed for entry in entries] == [20]
    local = explore.sweep("pins_deep_sea", out="local", **options)
    assert [results(run.folder) for run in on_ray.values()] == [results(run.folder) for run in local.values()]


@needs_ray
def test_an_unavailable_cluster_is_reported_in_one_line(folder, capsys):
    assert main(["sweep", "pins_deep_sea", "--out", "out", "--launcher", "ray", "--address", "nonsense"]) == 2
    assert "no Ray cluster is available at nonsense" in capsys.readouterr().err
