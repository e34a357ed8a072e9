"""Releases that a project's README states in prose."""

from __future__ import annotations

from pathlib import Path

import pytest

from gonogo.evidence.environment.stated import stated_releases


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        ("## Requirements\n- [PyTorch](http://pytorch.org) install = 1.4.0\n", {"torch": "==1.4.0"}),
        ("Tested with CUDA 11.3, PyTorch 1.10.0 and timm 0.5.0.\n", {"torch": "==1.10.0", "timm": "==0.5.0"}),
        ("The code has been tested on PyTorch 1.10.\n", {"torch": "==1.10.*"}),
        ("### Install\n1. Install PyTorch=0.4.1 following the instructions\n", {"torch": "==0.4.1"}),
        ("# Setup\nPyTorch 1.9.0 (or later)\n", {"torch": ">=1.9.0"}),
        ("# Setup\nInstall torch (>=2.1.0)\n", {"torch": ">=2.1.0"}),
        ("## Requirements\nPyTorch 1.8.0\n\n## Setup\nPyTorch >= 1.6.0\n", {}),  # which of them?
        ("## News\nPyTorch 2.0 support is there\n", {}),
        ("# Setup\nsee pytorch-1.8/readme and torchvision.io\n", {}),
    ],
)
def test_what_a_page_states(tmp_path: Path, text: str, stated: dict[str, str]) -> None:
    (tmp_path / "README.md").write_text(text)
    found = stated_releases([tmp_path])
    assert {name: one.specifier for name, one in found.items()} == stated
    for one in found.values():
        assert one.specifier.lstrip("=>").removesuffix(".*") in text.encode()[one.start : one.end].decode()


def test_the_nearer_folder_counts(tmp_path: Path) -> None:
    (inner := tmp_path / "inner").mkdir()
    (tmp_path / "README.md").write_text("Tested with PyTorch 1.8.0\n")
    (inner / "README.md").write_text("Tested with PyTorch 1.9.0\n")
    assert stated_releases([inner, tmp_path])["torch"].specifier == "==1.9.0"
