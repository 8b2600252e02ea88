"""The kernels are built once and cached; where that fails, there is one line that says why, and PyTorch instead."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from explore import streams
from explore._native import library
from explore._native.library import MORE_FLAGS, SETTING, NotAvailable, find_fill, load_library

QUICK = """#!/bin/sh
case "$*" in *--version*) echo "quick 1.0"; exit 0;; esac
"""
"""A compiler that has a version, and then does what a test adds."""
DRAW = "from explore.streams import normal, stream; normal([stream(0, 'x')], 4)"
USE = f"""
from explore._native.library import NotAvailable, load_library
{DRAW}
try:
    print(load_library().path)
except NotAvailable as reason:
    print("not available:", reason)
"""


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    """An empty cache, and nothing loaded yet, whatever the environment says."""
    for name in (SETTING, MORE_FLAGS, "CXX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    forget()
    yield
    forget()


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """A whole library, compiled without optimisation: quickly."""
    path = tmp_path_factory.mktemp("kernels") / "quick.so"
    try:
        compiler = library.find_compiler()
    except NotAvailable as reason:
        pytest.skip(str(reason))
    subprocess.run([compiler, "-O0", "-std=c++17", "-shared", "-fPIC", library.SOURCE, "-o", path], check=True)
    return path


@pytest.fixture
def compiler(monkeypatch, tmp_path):
    """Makes a compiler of the lines of a shell script, which is then the one to be used."""

    def make(script, start=QUICK):
        path = tmp_path / "compiler"
        path.write_text(start + script)
        path.chmod(0o755)
        monkeypatch.setenv("CXX", str(path))
        return path

    return make


@pytest.fixture
def copying(compiler, built, tmp_path):
    """A compiler that gives the library at once; returns how often it was asked to."""
    compiler(f'echo once >> {tmp_path}/builds; for last; do :; done; cp {built} "$last"')
    return lambda: len((tmp_path / "builds").read_text().splitlines()) if (tmp_path / "builds").exists() else 0


def reason():
    """Why there are no kernels, which fails if there are some."""
    with pytest.raises(NotAvailable) as caught:
        load_library()
    assert find_fill() is None
    [line] = str(caught.value).splitlines()
    return line


def use_elsewhere(**environment):
    """What a new process uses, without a traceback."""
    ended = subprocess.run(
        [sys.executable, "-c", USE], env={**os.environ, **environment}, capture_output=True, text=True, timeout=120
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout.strip()


def forget():
    library._load.cache_clear(), find_fill.cache_clear()


def test_the_library_is_built_once(copying, tmp_path):
    path = load_library().path
    assert path.parent == tmp_path / "cache" / "explore"
    forget()
    assert load_library().path == path
    assert copying() == 1
    assert sorted(one.suffix for one in path.parent.iterdir()) == [".sha256", ".so"]


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("echo >&2; echo 'In file x:' >&2; echo 'x:1: error: no such flag' >&2; exit 1", "failed: x:1: error: no such"),
        ("echo 'strange' >&2; exit 1", "failed: strange"),
        ("exit 3", "failed: exit code 3"),
        ("kill -9 $$", "failed: exit code -9"),
        ("printf 'a\\377b\\n' >&2; exit 1", "failed: a\ufffdb"),
        ("exit 0", "cannot be loaded"),
        ("for last; do :; done; echo text > $last", "cannot be loaded"),
    ],
)
def test_a_compiler_that_fails_is_told_with_its_first_error(script, told, compiler):
    path = compiler(script)
    line = reason()
    assert told in line
    assert str(path) in line or told == "cannot be loaded"


def test_what_is_no_library_of_kernels_is_not_used(compiler, tmp_path):
    (tmp_path / "other.cpp").write_text('extern "C" int other() { return 0; }')
    real = library.find_compiler()
    compiler(f'for last; do :; done; {real} -shared -fPIC {tmp_path}/other.cpp -o "$last"')
    assert "undefined symbol: explore_run" in reason()


def test_a_compiler_without_a_version_is_not_used(compiler):
    compiler("exit 2", start="#!/bin/sh\n")
    assert reason().endswith("failed: exit code 2")


@pytest.mark.parametrize("slow", ["VERSION_SECONDS", "BUILD_SECONDS"])
def test_a_compiler_that_hangs_is_stopped_with_all_that_it_started(slow, compiler, monkeypatch, tmp_path):
    monkeypatch.setattr(library, slow, 0.5)
    path = compiler(f"sleep 60 & echo $! > {tmp_path}/child; wait", QUICK if slow == "BUILD_SECONDS" else "#!/bin/sh\n")
    assert reason() == f"{path} took longer than 0.5 seconds"
    child = (tmp_path / "child").read_text().strip()
    stat = Path(f"/proc/{child}/stat")
    assert not stat.exists() or stat.read_text().split()[2] == "Z"


def test_what_has_failed_is_not_tried_again(compiler, tmp_path):
    compiler(f"echo once >> {tmp_path}/tries; exit 1")
    assert reason() == reason()
    assert (tmp_path / "tries").read_text() == "once\n"


def test_a_file_that_is_no_program_is_no_compiler(compiler):
    path = compiler("", start="neither a script nor a program")
    assert reason() == f"{path} cannot be run: Exec format error"


def test_a_missing_compiler_is_told_by_its_name(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert reason().startswith("there is no C++ compiler (no-such-compiler); install one")


def test_kernels_without_their_source_are_not_available(monkeypatch, tmp_path, copying):
    monkeypatch.setattr(library, "SOURCE", tmp_path / "kernels.cpp")
    assert "No such file" in reason()


def test_a_cache_that_cannot_be_written_gives_way_to_a_temporary_folder(copying, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    path = Path(use_elsewhere(XDG_CACHE_HOME=str(tmp_path / "file"), TMPDIR=str(tmp_path)))
    assert path.parent.parent == tmp_path and path.name.startswith("kernels-")
    assert not path.parent.exists()


def test_nothing_is_left_in_the_temporary_folder_if_the_cache_can_be_written(copying, tmp_path):
    (tmp_path / "tmp").mkdir()
    assert Path(use_elsewhere(TMPDIR=str(tmp_path / "tmp"))).is_file()
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_library_in_a_cache_that_cannot_be_written_is_used(copying, monkeypatch):
    path = load_library().path
    forget()
    monkeypatch.setattr(library.tempfile, "mkstemp", lambda **_: pytest.fail("nothing is to be written"))
    assert load_library().path == path


def test_it_is_said_if_nothing_can_be_written(copying, monkeypatch, tmp_path):
    def refuse(*_, **__):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(library.tempfile, "mkstemp", refuse)
    monkeypatch.setattr(library.tempfile, "mkdtemp", refuse)
    assert reason() == ("they can be kept nowhere: [Errno 30] Read-only file system; [Errno 30] Read-only file system")


def test_there_need_be_no_home(copying, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(library.os.path, "expanduser", lambda path: path)
    assert load_library().path.parent.name.startswith("explore-")


@pytest.mark.parametrize("suffix", [".so", ".sha256"])
@pytest.mark.parametrize("content", [None, b"", b"half", b"\xff\xfe" * 40, "cut"])
def test_a_damaged_cache_is_built_again(suffix, content, copying):
    path = load_library().path
    damaged = path.with_suffix(suffix)
    whole = damaged.read_bytes()
    damaged.unlink()  # and not overwritten: this process has it in its memory
    if content is not None:
        damaged.write_bytes(whole[: len(whole) // 2] if content == "cut" else content)
    forget()
    assert load_library().path == path
    assert damaged.read_bytes() == whole
    assert copying() == 2


def test_a_library_that_cannot_be_loaded_here_is_built_again(compiler, built):
    """It is whole, but of another system that shares the folder."""
    compiler('for last; do :; done; echo "of another system" > "$last"')
    assert "cannot be loaded" in reason()
    compiler(f'for last; do :; done; cp {built} "$last"')
    forget()
    assert load_library().path.read_bytes() == built.read_bytes()


def another_compiler(monkeypatch, compiler, built):
    compiler(f'for last; do :; done; cp {built} "$last"', QUICK.replace("1.0", "2.0"))


def another_machine(monkeypatch, compiler, built):
    monkeypatch.setattr(library.platform, "machine", lambda: "another")


def other_flags(monkeypatch, compiler, built):
    monkeypatch.setenv(MORE_FLAGS, "-g")


def another_variant(monkeypatch, compiler, built):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "another")


@pytest.mark.parametrize("change", [another_compiler, another_machine, other_flags, another_variant])
def test_what_another_compiler_or_machine_built_is_left_alone(change, copying, monkeypatch, compiler, built):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    before = load_library().path
    forget()
    change(monkeypatch, compiler, built)
    after = load_library().path
    assert before != after and before.is_file() and after.is_file()


@pytest.mark.slow
def test_two_processes_may_build_at_once(compiler, built, tmp_path):
    compiler(f'for last; do :; done; head -c 5000 {built} > "$last"; sleep 1; cp {built} "$last"')
    both = [subprocess.Popen([sys.executable, "-c", USE], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    one, other = (process.communicate(timeout=120)[0].strip() for process in both)
    assert one == other and Path(one).parent == tmp_path / "cache" / "explore"
    assert len(list(Path(one).parent.iterdir())) == 2
    assert load_library().path == Path(one)


@pytest.mark.parametrize("wanted", ["fast", "AVX2"])
def test_an_unknown_variant_is_refused(wanted, monkeypatch):
    monkeypatch.setenv(SETTING, wanted)
    assert reason() == f"EXPLORE_KERNELS must be auto, off, avx512, avx2, portable, got {wanted!r}"


@pytest.mark.parametrize(("wanted", "capability"), [("avx512", "AVX2"), ("avx512", "DEFAULT"), ("avx2", "NO AVX")])
def test_instructions_that_the_processor_does_not_have_are_refused(wanted, capability, monkeypatch, copying):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setenv(SETTING, wanted)
    assert reason() == f"EXPLORE_KERNELS={wanted}, which this processor does not have"
    assert copying() == 0


@pytest.mark.parametrize(
    ("capability", "variant"), [("AVX512", "avx512"), ("AVX2", "avx2"), ("DEFAULT", "portable"), ("SVE256", "portable")]
)
def test_the_variant_is_what_the_processor_can_run(capability, variant, monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    assert library.choose_variant() == variant
    monkeypatch.setenv(SETTING, "")
    assert library.choose_variant() == variant


def test_kernels_can_be_switched_off(monkeypatch, copying):
    monkeypatch.setenv(SETTING, "off")
    assert reason() == "EXPLORE_KERNELS=off is set"
    assert copying() == 0


def test_random_numbers_are_the_same_without_kernels_and_others_without_a_library(copying, monkeypatch):
    def draw():
        return streams.normal([streams.stream(0, "x")], 5)

    drawn = draw()
    with library.without_kernels():
        with pytest.raises(NotAvailable, match="switched off"):
            load_library()
        assert torch.equal(draw(), drawn)
    monkeypatch.setenv(SETTING, "off")
    assert torch.equal(draw(), drawn)  # within a process nothing changes
    forget()
    assert not torch.equal(draw(), drawn)
