import pytest
from pages import REPOSITORY


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty working folder, but for the recipes."""
    (tmp_path / "gin").symlink_to(REPOSITORY / "gin")
    monkeypatch.chdir(tmp_path)
    return tmp_path
