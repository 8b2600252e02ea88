import copy

import pytest
import torch

from explore._config.discovery import discover
from explore._running.provenance import describe_changed_bindings, describe_changes, list_user_plugins, provenance


@pytest.fixture(scope="module")
def now():
    return provenance(discover())


def test_it_names_the_versions_of_all_packages_that_matter(now):
    versions = now["versions"]
    assert {"python", "explore", "numpy", "gin-config", "bsuite", "dm-env", "pluggy"} < versions.keys()
    assert versions["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert all(versions.values())


def test_it_names_what_decides_how_numbers_are_rounded(now):
    assert torch.backends.cpu.get_cpu_capability() in now["machine"]


def test_nothing_has_changed_if_nothing_has(now):
    assert describe_changes(now, now) == []


@pytest.mark.parametrize("package", ["python", "explore", "torch", "numpy", "bsuite", "dm-env"])
def test_another_version_is_named(now, package):
    then = copy.deepcopy(now)
    then["versions"][package] = "0.0.1"
    assert describe_changes(then, now) == [f"{package} 0.0.1 (now {now['versions'][package]})"]


@pytest.mark.parametrize("package", ["gin-config", "pluggy"])
def test_another_version_of_what_computes_nothing_does_not_matter(now, package):
    then = copy.deepcopy(now)
    then["versions"][package] = "0.0.1"
    assert describe_changes(then, now) == []


MINE = {"name": "mine", "version": "1", "source": "mine.py", "sha256": "a"}


@pytest.mark.parametrize(
    ("then", "expected"),
    [
        (MINE, []),
        (MINE | {"source": "elsewhere/mine.py"}, []),
        (MINE | {"version": "0"}, ["plugin mine 0 (now 1)"]),
        (MINE | {"sha256": "b"}, ["plugin mine (edited since)"]),
        (MINE | {"name": "other"}, ["plugin other 1 (now missing)"]),
    ],
)
def test_another_plugin_is_named(now, then, expected):
    assert describe_changes(now | {"plugins": [then]}, now | {"plugins": [MINE]}) == expected


def test_a_plugin_that_is_new_does_not_matter(now):
    assert describe_changes(now | {"plugins": []}, now | {"plugins": [MINE]}) == []


def test_plugins_that_were_given_are_told_from_those_that_were_there(now):
    installed = MINE | {"source": "entry point (mine 1.0)"}
    assert list_user_plugins(now) == []
    assert list_user_plugins({"plugins": [*now["plugins"], installed, MINE]}) == [MINE]


def test_parameters_that_differ_are_named_with_both_values():
    before = "experiment:\n  episodes = 3\n  threads = 1\nvalue.MLP.hidden = (50, 50)\nprior.Additive.scale = 2.0\n"
    after = "experiment:\n  episodes = 9\n  threads = 2\nvalue.MLP.hidden = (50,)\nuncertainty.Ensemble.size = 2\n"
    assert describe_changed_bindings(before, before) == []
    assert describe_changed_bindings(before, after) == [
        "experiment.threads = 1 (now 2)",
        "value.MLP.hidden = (50, 50) (now (50,))",
        "prior.Additive.scale = 2.0 (now (not set))",
        "uncertainty.Ensemble.size = (not set) (now 2)",
    ]
