"""Whose code a frame is of, where gonogo and torch are links, as an environment of the project's packages has them."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import gonogo

PROGRAM = """\
import importlib.util, sys
from gonogo.virtual.stack import OURS, frame_of, owner_of
from gonogo.virtual.stack import frames_of_call

def calls():
    return [frame.function for frame in frames_of_call()]

torch = importlib.util.find_spec("torch").origin
print(frame_of(frames_of_call.__code__.co_filename, 1, "f"), owner_of(torch), calls(), OURS in torch)
"""


def test_gonogos_own_frames_are_left_out_and_torchs_are_torchs(tmp_path: Path) -> None:
    torch = find_spec("torch")
    assert torch is not None
    assert torch.origin is not None
    packages = tmp_path / "lib" / "python3" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "gonogo").symlink_to(Path(gonogo.__file__).resolve().parent)
    (packages / "torch").symlink_to(Path(torch.origin).parent)
    (tmp_path / "train.py").write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    said = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert said.stdout.strip() == "None torch ['<module>', 'calls'] False", said.stderr
