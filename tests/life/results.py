"""What becomes of a checkpoint: converted, merged and loaded, by real libraries, and what is lost on the way.

What is lost was seen in real runs on the CPU (``benchmarks/life_results.py --really``), and stands in ``results.json``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cells import CANNOT_TELL, GO, NO_GO
from cells import write_project as write_base

from gonogo.finding import Verdict

TRUTH = Path(__file__).parent / "results.json"
_SMALL = (
    "--max_steps 8 --save_steps 2 --report_to none --per_device_train_batch_size 1 --logging_steps 1 "
    "--optim adamw_torch --learning_rate 1e-2"
)
_SAVED = "out/checkpoint-2"


@dataclass(frozen=True)
class ResultCell:
    """Commands of the stages after the save; ``serve`` is the folder that is loaded in the end."""

    words: str
    convert: str | None = None
    merge: str | None = None
    serve: str = _SAVED
    verdict: Verdict = GO
    really: bool = True
    engine: str | None = None
    """A command of vLLM, instead of transformers."""

    @property
    def command(self) -> str:
        """What trains."""
        return f"torchrun --nproc_per_node 2 trainer.py --output_dir out {_SMALL} {self.words}".strip()

    @property
    def name(self) -> str:
        """What it is called in the truth."""
        return " | ".join((self.words, self.convert or "", self.merge or "", self.engine or self.serve))


_ADAPTER = "--based --adapter"
_MERGE = f"merge.py {_SAVED} result"
_ZERO = f"convert.py zero {_SAVED} result"
_FSDP2 = "--fsdp full_shard --fsdp_config sharded2.json"
_WITH_ADAPTER = f"vllm serve base --enable-lora --lora-modules own={_SAVED}"
CELLS = [
    # The Trainer's own checkpoint is what transformers loads.
    ResultCell(""),
    ResultCell("--based --tied"),
    ResultCell("--frozen"),
    ResultCell("--bf16 --deepspeed z2.json"),
    # ZeRO-3 gathers no weights for the save unless it is told to.
    ResultCell("--bf16 --deepspeed z3.json", verdict=NO_GO),
    ResultCell("--bf16 --deepspeed z3.json", convert=_ZERO, serve="result"),
    ResultCell("--bf16 --deepspeed z2.json", convert=_ZERO, serve="result"),
    ResultCell("--tied --bf16 --deepspeed z3.json", convert=_ZERO, serve="result"),
    ResultCell("--frozen --bf16 --deepspeed z3.json", convert=_ZERO, serve="result"),
    ResultCell("--bf16 --deepspeed z2.json", convert=f"{_ZERO} prefix", serve="result", verdict=NO_GO),
    ResultCell("--bf16 --deepspeed z3.json", convert=f"{_ZERO} half", serve="result", verdict=NO_GO),
    # There is no such checkpoint for zero_to_fp32.
    ResultCell("", convert=_ZERO, serve="result", verdict=NO_GO),
    # Adapters
    ResultCell(_ADAPTER, merge=_MERGE, serve="result"),
    ResultCell(_ADAPTER, merge=f"{_MERGE} --shards", serve="result"),
    ResultCell(f"{_ADAPTER} --kept", merge=_MERGE, serve="result"),
    ResultCell(f"{_ADAPTER} --kept --bf16 --deepspeed z2.json", merge=_MERGE, serve="result"),
    ResultCell(f"{_ADAPTER} --bf16 --deepspeed z2.json", merge=_MERGE, serve="result"),
    ResultCell(f"{_ADAPTER} --head", merge=_MERGE, serve="result", verdict=NO_GO),
    ResultCell(_ADAPTER, merge=f"{_MERGE} --unmerged", serve="result", verdict=NO_GO),
    # torch.distributed.checkpoint, by FSDP2, which accelerate doesn't have on the CPU
    ResultCell(
        f"--bf16 {_FSDP2}", convert=f"convert.py dcp {_SAVED}/pytorch_model_fsdp_0 result", serve="result",
        really=False,
    ),
    # Under vLLM's names
    ResultCell("", engine=f"vllm serve {_SAVED} --max-model-len 64", really=False),
    ResultCell(
        "--bf16 --deepspeed z2.json", convert=f"{_ZERO} prefix", engine="vllm serve result", verdict=NO_GO, really=False
    ),
    ResultCell(_ADAPTER, engine=_WITH_ADAPTER, really=False),
    ResultCell(f"{_ADAPTER} --kept", engine=_WITH_ADAPTER, verdict=NO_GO, really=False),
    ResultCell(f"{_ADAPTER} --head", engine=_WITH_ADAPTER, verdict=NO_GO, really=False),
    ResultCell("", engine=f"vllm serve {_SAVED} --quantization fp8", verdict=CANNOT_TELL, really=False),
]  # fmt: skip
__all__ = ["CANNOT_TELL", "CELLS", "TRUTH", "ResultCell", "write_base"]
