"""Memory of transformers' own meshes (`DistributedConfig`: FSDP2 x TP x EP), rehearsed and real.

    python benchmarks/distributed_config_memory.py [--only WORDS]

Each cell is trained for two steps by real ranks over gloo on the CPU, with real tensors, every storage of rank 0
counted from its first use to its last; the same program is rehearsed on as many virtual H100s. cuBLAS's workspace,
which the CPU doesn't have, is left out of what is rehearsed. A real router doesn't spread its tokens evenly, as a
rehearsal assumes: cells with experts have a wider bound. Some meshes of FSDP2 and TP never come to their end over
gloo, though all ranks call the same collectives in one order (``--ranks all``): these are shown as not trained.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from real_ranks import run_ranks

from gonogo.rehearse.answer import rehearse_and_report
from gonogo.rehearse.request import RehearsalRequest

_HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(_HERE.parent / "tests"))

from virtual.worlds import of_tensors  # noqa: E402

_MOST = 0.01
_MOST_WITH_EXPERTS = 0.05
_SECONDS = 180.0

_SMALL = {
    "hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads": 4, "head_dim": 32, "vocab_size": 8192, "tie_word_embeddings": False, "use_cache": False,
}  # fmt: skip
_MODELS: dict[str, dict[str, Any]] = {
    "qwen3": {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], **_SMALL},
    "llama-tied": {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **_SMALL, "tie_word_embeddings": True},
    "qwen3-moe": {
        "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], **_SMALL, "moe_intermediate_size": 256,
        "num_experts": 16, "num_experts_per_tok": 4, "decoder_sparse_step": 1,
    },
}  # fmt: skip

PROGRAM = """\
import json, os, sys
import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM
from transformers.distributed import DistributedConfig

sizes = json.loads(sys.argv[1])
kept = sizes.pop("checkpointing", False)
mesh = DistributedConfig(**sizes)
model = AutoModelForCausalLM.from_pretrained("model", dtype=torch.bfloat16, distributed_config=mesh)
if kept:
    model.gradient_checkpointing_enable({"use_reentrant": False})
model.train()
if model.device.type == "cpu":  # a shard of a tensor in a file is a view of the whole there; on a GPU it is a copy
    for parameter in model.parameters():
        local = getattr(parameter, "_local_tensor", parameter.data)
        local.set_(local.clone())
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
torch.manual_seed(dist.get_rank() // sizes.get("tp_size", 1))
for _ in range(2):
    tokens = torch.randint(0, 8192, (4, 512)).to(model.device)
    model(input_ids=tokens, labels=tokens).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""

COUNTED = """\
import os, runpy, sys, weakref
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

class Storages(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.peak, self.live = 0, {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(kind.__name__ == "DTensor" for kind in types):
            return NotImplemented  # its operators on local tensors come here next: they are what takes memory
        out = func(*args, **(kwargs or {}))
        if not func.is_view:  # gloo divides workspaces of its own, which NCCL doesn't have
            for tensor in tree_leaves(out):
                if isinstance(tensor, torch.Tensor) and tensor.device.type != "meta":
                    storage = tensor.untyped_storage()
                    self.live[storage._cdata] = weakref.ref(storage)
        held = [(key, ref()) for key, ref in self.live.items()]
        self.live = {key: self.live[key] for key, storage in held if storage is not None}
        # Their sizes are read anew each time: FSDP2 frees what it has gathered by resizing it.
        self.peak = max(self.peak, sum(storage.nbytes() for _, storage in held if storage is not None))
        return out

storages = Storages()
with storages:
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
print("PEAK", storages.peak, flush=True)
os._exit(0)
"""


@dataclass(frozen=True)
class Cell:
    """A model and the sizes of its ``DistributedConfig``."""

    model: str
    sizes: tuple[tuple[str, int | bool], ...]

    @property
    def name(self) -> str:
        """Of all that it is."""
        return " ".join([self.model, *(f"{key.removesuffix('_size')}={value}" for key, value in self.sizes)])

    @property
    def ranks(self) -> int:
        """Of the mesh. Experts are spread over the ranks of the other axes."""
        sizes = dict(self.sizes)
        return sizes.get("tp_size", 1) * sizes.get("fsdp_size", 1) * sizes.get("dp_replicate_size", 1)


def _cell(model: str, **sizes: int | bool) -> Cell:
    return Cell(model, tuple(sizes.items()))


CELLS = [
    _cell("qwen3", tp_size=2),
    _cell("qwen3", tp_size=4),
    _cell("qwen3", fsdp_size=4),
    _cell("qwen3", fsdp_size=4, fsdp_mixed_precision=True),
    _cell("qwen3", fsdp_size=4, checkpointing=True),
    _cell("qwen3", fsdp_size=2, tp_size=2),
    _cell("qwen3", fsdp_size=2, tp_size=2, checkpointing=True),
    _cell("qwen3", fsdp_size=2, dp_replicate_size=2),
    _cell("llama-tied", fsdp_size=2),
    _cell("llama-tied", fsdp_size=2, tp_size=2),
    _cell("qwen3-moe", fsdp_size=4),
    _cell("qwen3-moe", fsdp_size=4, ep_size=2),
    _cell("qwen3-moe", fsdp_size=4, ep_size=4),
    _cell("qwen3-moe", fsdp_size=4, ep_size=4, checkpointing=True),
    _cell("qwen3-moe", fsdp_size=2, tp_size=2, ep_size=4),
    _cell("qwen3-moe", fsdp_size=2, dp_replicate_size=2, ep_size=2),
    _cell("qwen3-moe", tp_size=4),
]


def _write(cell: Cell, folder: Path) -> list[str]:
    """The model and the program; the program's words."""
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(_MODELS[cell.model]), encoding="utf-8")
    (folder / "train.py").write_text(PROGRAM, encoding="utf-8")
    return ["train.py", json.dumps(dict(cell.sizes))]


def real(cell: Cell, folder: Path) -> int:
    """The peak of rank 0, in bytes. Raises RuntimeError where the training fails."""
    words = _write(cell, folder)
    made = (
        "import torch, transformers; c = transformers.AutoConfig.from_pretrained('model'); torch.manual_seed(0); "
        "transformers.AutoModelForCausalLM.from_config(c, dtype=torch.bfloat16).save_pretrained('model')"
    )
    subprocess.run([sys.executable, "-c", made], cwd=folder, check=True, capture_output=True, timeout=_SECONDS)
    (folder / "counted.py").write_text(COUNTED, encoding="utf-8")
    run_ranks(
        cell.ranks,
        lambda rank: [sys.executable, *(["counted.py"] if rank == 0 else []), *words],
        lambda rank: folder / f"{rank}.log",
        folder,
        {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        _SECONDS,
    )
    log = (folder / "0.log").read_text(encoding="utf-8", errors="replace")
    peaks = [line.split()[1] for line in log.splitlines() if line.startswith("PEAK")]
    if not peaks:
        raise RuntimeError(f"{cell.name}: it was not trained\n{log[-3000:]}")
    return int(peaks[0])


def predicted(cell: Cell, folder: Path) -> int:
    """The same of a rehearsal. Raises RuntimeError where there is no answer."""
    words = _write(cell, folder)
    before = os.getcwd()
    os.chdir(folder)
    try:
        record, report = rehearse_and_report(
            RehearsalRequest(
                ["torchrun", "--nproc_per_node", str(cell.ranks), *words],
                gpus=f"{cell.ranks}xH100-80G", ranks="0", as_installed=True,
            )
        )  # fmt: skip
    finally:
        os.chdir(before)
    if report.verdict != "GO":
        raise RuntimeError(f"{cell.name}: {report.verdict}, {[one.why.en for one in report.skipped]}")
    (device,) = record.ranks[0].devices
    return of_tensors(device)


def main() -> int:
    """Train each cell and rehearse it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="the cells with these words in their names")
    chosen = [cell for cell in CELLS if parser.parse_args().only in cell.name]
    if not chosen:
        sys.exit("no cell is chosen: none has these words in its name")
    wrong = untrained = 0
    print(f"{'cell':<56}{'real MiB':>10}{'rehearsed':>11}{'error':>9}")
    for cell in chosen:
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
            rehearsed = predicted(cell, Path(other))
            try:
                really = real(cell, Path(one))
            except subprocess.TimeoutExpired:
                untrained += 1
                print(
                    f"{cell.name:<56}{'-':>10}{rehearsed / 2**20:>11.1f}  not trained within {_SECONDS:.0f} s",
                    flush=True,
                )
                continue
        error = rehearsed / really - 1
        is_wrong = abs(error) > (_MOST_WITH_EXPERTS if "moe" in cell.model else _MOST)
        wrong += is_wrong
        print(f"{cell.name:<56}{really / 2**20:>10.1f}{rehearsed / 2**20:>11.1f}{error:>9.2%}"
              f"{'  beyond the bound' if is_wrong else ''}", flush=True)  # fmt: skip
    compared = len(chosen) - untrained
    print(f"{compared - wrong} of {compared} within {_MOST:.0%} (with experts {_MOST_WITH_EXPERTS:.0%}); "
          f"{untrained} not trained")  # fmt: skip
    return 1 if wrong or not compared else 0


if __name__ == "__main__":
    sys.exit(main())
