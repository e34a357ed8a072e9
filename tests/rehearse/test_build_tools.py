"""A program that compiles an extension as it starts finds headers and the rank's Python."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from gonogo.rehearse.launch import build_tools


def test_the_suffix_of_a_module_is_that_of_the_ranks_python(tmp_path: Path) -> None:
    if build_tools._python_config(sys.executable) is None:
        pytest.skip("this Python came without python3-config")
    environment = build_tools.with_build_tools({"PATH": os.environ["PATH"]}, sys.executable, tmp_path)
    words = ["python3-config", "--extension-suffix"]
    told = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)
    assert told.stdout.strip() == sysconfig.get_config_var("EXT_SUFFIX")


def test_the_python_of_the_launch_is_found_first(tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    for folder in (own, other):
        folder.mkdir()
        (folder / "python3").write_text("#!/bin/sh\n")
        (folder / "python3").chmod(0o755)
    programs = tmp_path / "programs"
    programs.mkdir()
    found = build_tools.with_build_tools({"PATH": str(other)}, str(own / "python3"), programs)
    assert found["PATH"] == os.pathsep.join(map(str, (programs, own, other)))
    activated = f"{own}{os.pathsep}{other}"
    found = build_tools.with_build_tools({"PATH": activated}, str(own / "python3"), programs)
    assert found["PATH"] == os.pathsep.join((str(programs), activated))


def test_headers_of_pybind11_come_after_the_projects_own(tmp_path: Path) -> None:
    build_tools._headers.cache_clear()
    found = build_tools.with_build_tools({"CPLUS_INCLUDE_PATH": "/own"}, sys.executable, tmp_path)["CPLUS_INCLUDE_PATH"]
    first, *folders = found.split(os.pathsep)
    assert first == "/own"
    if folders:  # not where pybind11 is installed
        assert (Path(folders[0]) / "pybind11" / "pybind11.h").is_file()
