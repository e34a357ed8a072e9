from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import importlib.util, sys
from gonogo.virtual.hooks import older_deepspeed
told = []
undo = older_deepspeed.install(told.append)
assert importlib.util.find_spec("deepspeed") is not None and not told  # looking for it is not importing it
import deepspeed
print(*(what.en for what in told), sep="\\n")
undo()
import numpy
assert not hasattr(numpy, "BUFSIZE")
"""


def fake_deepspeed(folder: Path, elastic: str, scheduler: str) -> None:
    for name in ("deepspeed", "deepspeed/elasticity", "deepspeed/autotuning"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("")
    (folder / "deepspeed/elasticity/elastic_agent.py").write_text(elastic)
    (folder / "deepspeed/autotuning/scheduler.py").write_text(scheduler)
    (folder / "deepspeed/__init__.py").write_text(
        "from deepspeed.elasticity import elastic_agent\nfrom deepspeed.autotuning import scheduler\n"
    )


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], env={"PYTHONPATH": str(folder)}, capture_output=True, text=True, check=False
    )


def test_names_that_an_old_deepspeed_imports_are_put_back(tmp_path: Path) -> None:
    fake_deepspeed(
        tmp_path,
        "from torch.distributed.elastic.agent.server.api import log, _get_socket_with_port\n"
        "log.debug('works')\n"
        "with _get_socket_with_port() as s:\n"
        "    assert s.getsockname()[1] > 0\n",
        "from numpy import BUFSIZE\nassert BUFSIZE == 8192\n",
    )
    result = run(tmp_path)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert [line.split(" exists,")[0] for line in lines] == [
        "torch.distributed.elastic.agent.server.api.log",
        "torch.distributed.elastic.agent.server.api._get_socket_with_port",
        "numpy.BUFSIZE",
    ]


def test_a_newer_deepspeed_gets_nothing(tmp_path: Path) -> None:
    fake_deepspeed(
        tmp_path,
        "from torch.distributed.elastic.agent.server.api import (\n    RunResult,\n    WorkerGroup,\n)\n",
        "from .constants import BUFSIZE\n",
    )
    (tmp_path / "deepspeed/autotuning/constants.py").write_text("BUFSIZE = 1\n")
    result = run(tmp_path)
    assert result.returncode == 0, result.stderr
    assert not result.stdout.strip()


def test_an_old_deepspeed_that_would_ask_itself_without_end(tmp_path: Path) -> None:
    fake_deepspeed(tmp_path, "", "")
    folder = tmp_path / "deepspeed/accelerator"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "cuda_accelerator.py").write_text("class CUDA_Accelerator:\n    pass\n")
    (folder / "real_accelerator.py").write_text(
        "import os\nds_accelerator = None\n\n"
        "def is_current_accelerator_supported():\n    return get_accelerator()\n\n"
        "def get_accelerator():\n    if ds_accelerator is not None:\n        return ds_accelerator\n"
        "    if os.environ['DS_ACCELERATOR'] == 'xpu':\n        pass\n"
        "    elif is_current_accelerator_supported():\n        raise ValueError\n"
    )
    (tmp_path / "deepspeed/__init__.py").write_text(
        "import os\nos.environ['DS_ACCELERATOR'] = 'cuda'\n"
        "from deepspeed.accelerator.real_accelerator import get_accelerator\n"
        "print(type(get_accelerator()).__name__)\n"
    )
    result = run(tmp_path)
    assert result.returncode == 0, result.stderr
    assert "CUDA_Accelerator" in result.stdout


def test_a_name_that_never_was_is_still_an_error(tmp_path: Path) -> None:
    fake_deepspeed(tmp_path, "", "from numpy import NO_SUCH_NAME\n")
    result = run(tmp_path)
    assert "cannot import name 'NO_SUCH_NAME'" in result.stderr


def test_the_installed_deepspeed_imports() -> None:
    pytest.importorskip("deepspeed")
    result = run(Path("/nonexistent"))
    assert result.returncode == 0, result.stderr
