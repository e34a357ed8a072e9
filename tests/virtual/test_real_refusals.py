"""What the real torch raises in a rehearsal, named by the hazards that read logs."""

from __future__ import annotations

from pathlib import Path

import pytest
from virtual_worker import answers

from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.log.line import LogLine
from gonogo.evidence.setup import Setup
from gonogo.finding import Certainty, Finding
from gonogo.judge.log_findings import findings_in_log

pytestmark = pytest.mark.slow

PROGRAM = """
    import traceback
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.config = {}
            self.embedding = torch.nn.Embedding(16, 8)
            self.head = torch.nn.Linear(8, 16)

        def forward(self, ids):
            return self.head(self.embedding(ids))

        def generate(self, ids):
            return self.head(self.embedding(ids)).argmax(-1)

    def told(action):
        try:
            action()
        except Exception:
            return traceback.format_exc()
        return ""

    dist.init_process_group("nccl")
    torch.cuda.set_device(0)
    ids = torch.tensor([[1, 2, 3]], device="cuda")
    mean = torch.tensor([1.0], device="cuda")
    dist.all_reduce(mean)
    sharded, wrapped = Model().cuda(), DistributedDataParallel(Model().cuda(), device_ids=[0])
    fully_shard(sharded)
    sharded(ids).sum().backward()
    answer(
        collective=told(lambda: dist.all_reduce(mean.cpu())),
        method=told(lambda: sharded.generate(ids)),
        attribute=told(lambda: wrapped.config),
        clipping=told(lambda: torch.nn.utils.clip_grad_norm_([*sharded.parameters(), *plain()], 1.0)),
        wide=told(lambda: torch.distributed.device_mesh.init_device_mesh("cuda", (4,))),
    )
"""
PLAIN = """
    def plain():
        parameter = torch.nn.Parameter(torch.ones(4, device="cuda"))
        parameter.grad = torch.ones(4, device="cuda")
        return [parameter]
"""


def first(text: str) -> Finding:
    lines = [LogLine("", number, line) for number, line in enumerate(text.splitlines(), 1)]
    return findings_in_log(FailureLog(lines, Setup(launch="torchrun train.py")))[0]


def test_what_torch_raises_is_named(tmp_path: Path) -> None:
    told = answers(tmp_path, PLAIN + PROGRAM, world=2)
    assert "No backend type associated with device type cpu" in told["collective"]
    found = {name: first(text) for name, text in told.items()}
    assert {name: finding.hazard for name, finding in found.items()} == {
        "collective": "collective-of-cpu-tensor",
        "method": "fsdp2-method-outside-forward",
        "attribute": "attribute-of-wrapped-model",
        "clipping": "fsdp2-plain-parameters-beside-dtensors",
        "wide": "parallel-degrees-not-dividing-world",
    }
    assert found["collective"].certainty is Certainty.CERTAIN
