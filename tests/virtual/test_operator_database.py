"""Every operator, module and optimizer that torch tests itself with: on a virtual GPU as really on the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).with_name("operator_database.py")
# Where a GPU's answer is another than the CPU's, or the database asks it something else.
OTHERWISE = {
    "native_layer_norm": "a GPU keeps the statistics in float32",
    "native_batch_norm": "a GPU keeps the statistics in float32",
    "_native_batch_norm_legit": "a GPU keeps the statistics in float32",
    "_batch_norm_with_update": "a GPU keeps the statistics in float32",
    "lu_unpack": "for a GPU the database has samples without pivoting, too",
    "linalg.lu": "for a GPU the database has samples without pivoting, too",
    "linalg.lu_factor": "for a GPU the database has samples without pivoting, too",
    "linalg.lu_factor_ex": "for a GPU the database has samples without pivoting, too",
    "linalg.lstsq": "for a GPU the database has other drivers",
    "linalg.lstsq.grad_oriented": "for a GPU the database has other drivers",
    "_softmax_backward_data": "for a GPU the database has samples that go from half to float",
    "baddbmm": "where there is no GPU the database asks for no gradient in bfloat16",
    "LBFGS": "how long it searches depends on values",
    "to_sparse": "a sparse result can't be rehearsed, and is named",
    "nn.MultiLabelMarginLoss": "torch's own rule says one element where its kernels say a number",
}


def answers(text: str) -> dict[str, Any]:
    lines = [json.loads(line[2:]) for line in text.splitlines() if line.startswith("@ ")]
    return dict(lines)


@pytest.mark.very_slow
def test_shapes_dtypes_and_gradients_are_those_of_real_calls(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": "0"}  # the database iterates over sets
    really = subprocess.run(
        [sys.executable, str(PROGRAM), "cpu"], env=environment, capture_output=True, text=True, timeout=800, check=False
    )
    assert really.returncode == 0, really.stderr[-2000:]
    command = [sys.executable, "-m", "gonogo", "rehearse", "--gpus", "1xH100-80G", "--steps", "100000"]
    command += ["--timeout", "800", "--keep", "kept", "--", "python", str(PROGRAM), "cuda"]
    subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=850, check=False)
    virtual = answers((tmp_path / "kept" / "rank-0" / "output.log").read_text())
    real = answers(really.stdout)
    assert len(real) > 3000
    raised = {name for name, answer in real.items() if isinstance(answer, str)}  # the CPU has no kernel for it
    others = {name for name in real if name.split(" ")[0] in OTHERWISE}
    differing = {
        name: (real[name], virtual.get(name))
        for name in real.keys() - raised - others
        if virtual.get(name) != real[name] and not only_here(name, virtual)
    }
    assert differing == {}
    assert len(raised) < 0.03 * len(real)


def only_here(name: str, virtual: dict[str, Any]) -> bool:
    """Whether the database has nothing of the kind for a virtual tensor (it asks ``type(mask) is torch.Tensor``)."""
    return name.startswith(("masked.cumsum", "masked.cumprod")) and name not in virtual
