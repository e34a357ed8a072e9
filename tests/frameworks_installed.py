"""Training frameworks and large libraries for tests: each in a folder of its own, since they contradict one another.

A folder is laid over the virtual environment by ``PYTHONPATH``, and kept beside it from one test run to the next.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

_PINS = Path(__file__).parent / "frameworks"
_FOLDERS = Path(sys.prefix) / "frameworks"
# What the training imports: compiled once here, since a rehearsal writes no bytecode.
_IMPORTS = {
    "trl": "from trl import SFTTrainer",
    "trl_before_1": "import trl",
    "trl_of_examples": "import trl",
    "swift": "from swift.pipelines import sft_main; from swift.arguments import SftArguments; import swift.trainers",
    "llamafactory": "import llamafactory.train.tuner, llamafactory.train.sft.workflow",
    "openrlhf": "import transformers, torchdata, pylatexenc, aiohttp",
    "verl": "import verl.trainer.main_ppo, verl.workers.engine_workers, transfer_queue, peft, pandas",
    "verl-0.7": "import verl.trainer.main_ppo, verl.workers.fsdp_workers, verl.experimental.agent_loop, peft, pandas",
    "verl-0.8": "import verl.trainer.main_ppo, verl.workers.engine_workers, verl.experimental.agent_loop, peft, pandas",
    "axolotl": "import axolotl.train, axolotl.cli.main, axolotl.core.builders",
    "liger": "import triton.language, liger_kernel.transformers",
}


def framework(name: str) -> Path:
    """The folder that has the framework, installed where it isn't yet."""
    pins = (_PINS / f"{name}.txt").read_text()
    folder = _FOLDERS / name
    marker = folder / ".pins"
    _FOLDERS.mkdir(exist_ok=True)
    with open(_FOLDERS / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another worker of the test run may be at it
        if not marker.exists() or marker.read_text() != pins:
            _install(name, folder)
            marker.write_text(pins)
    return folder


def _install(name: str, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    options = ["--no-deps", "--no-compile", "--quiet", "--disable-pip-version-check", "--target", str(folder)]
    _run(sys.executable, "-m", "pip", "install", *options, "-r", str(_PINS / f"{name}.txt"))
    # The package index has torchaudio for CUDA only; without its library it is the Python that it is.
    shutil.rmtree(folder / "torchaudio" / "lib", ignore_errors=True)
    _run(sys.executable, "-c", f"import sys; sys.path.insert(0, {str(folder)!r}); {_IMPORTS[name]}")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr[-3000:]}"
