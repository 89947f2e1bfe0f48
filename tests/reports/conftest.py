"""Directories that tests of reports share."""

import shutil

import pytest

from reports.whole_audit import make_whole_audit


@pytest.fixture(scope="session")
def made_once(tmp_path_factory):
    return make_whole_audit(tmp_path_factory.mktemp("whole"))


@pytest.fixture
def whole(made_once, tmp_path):
    """A copy of a directory with the files of every command, which a test may change."""
    shutil.copytree(made_once, tmp_path / "whole")
    return tmp_path / "whole"
