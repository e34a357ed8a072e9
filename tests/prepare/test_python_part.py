"""Packages that are compiled with nvcc: their Python code, with the names of what they compile."""

from __future__ import annotations

import io
import sys
import tarfile
from pathlib import Path

import pytest

from gonogo.prepare.packages.python_part import read_python_part, write_python_part
from gonogo.virtual.unsupported import UnsupportedOperator

SETUP = "from torch.utils.cpp_extension import CUDAExtension\nCUDAExtension(\n    name='fast_conv_cuda', sources=[])\n"
FILES = {
    "setup.py": SETUP,
    "PKG-INFO": "Metadata-Version: 2.1\nName: fast_conv\nVersion: 1.5.2\n",
    "fast_conv.egg-info/requires.txt": "torch\neinops\n\n[dev]\npytest\n",
    "fast_conv/__init__.py": "from fast_conv.ops import conv\n",
    "fast_conv/ops.py": (
        "import fast_conv_cuda as cuda\nfrom fast_conv_cuda import update\n\ndef conv(x):\n    return cuda.forward(x)\n"
    ),
    "tests/__init__.py": "",
    "csrc/conv.cu": "__global__ void conv() {}\n",
}


def archive(folder: Path, files: dict[str, str]) -> Path:
    """An archive of sources with these files."""
    path = folder / "fast_conv-1.5.2.tar.gz"
    with tarfile.open(path, "w:gz") as made:
        for name, text in files.items():
            member = tarfile.TarInfo(f"fast_conv-1.5.2/{name}")
            member.size = len(text.encode())
            made.addfile(member, io.BytesIO(text.encode()))
    return path


def test_it_can_be_imported_and_stops_at_a_compiled_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = read_python_part("fast-conv", archive(tmp_path, FILES))
    assert part is not None
    assert (part.version, part.requirements) == ("1.5.2", ("torch", "einops"))
    assert not any(path.startswith(("tests", "csrc", "setup")) for path in part.files)
    packages = tmp_path / "site-packages"
    write_python_part(part, packages)
    monkeypatch.syspath_prepend(str(packages))
    try:
        from fast_conv import conv  # type: ignore[import-not-found]

        with pytest.raises(UnsupportedOperator, match=r"fast_conv_cuda\.forward"):
            conv(1)
        with pytest.raises(AttributeError):
            _ = sys.modules["fast_conv_cuda"].backward
    finally:
        for name in ("fast_conv", "fast_conv.ops", "fast_conv_cuda"):
            sys.modules.pop(name, None)


def test_what_is_not_compiled_with_nvcc_has_none(tmp_path: Path) -> None:
    assert read_python_part("fast-conv", archive(tmp_path, {**FILES, "setup.py": "setup()\n"})) is None


def test_no_file_is_written_outside(tmp_path: Path) -> None:
    part = read_python_part("fast-conv", archive(tmp_path, {**FILES, "../../fast_conv/evil.py": ""}))
    assert part is not None
    assert not any(".." in path or path.startswith("/") for path in part.files)
