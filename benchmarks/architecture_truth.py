"""Rows that end in an error, held against reality: the same program, with few layers, with real DeepSpeed.

    python benchmarks/architecture_truth.py [--only NAME,NAME]

Each is trained on the CPU with gloo (``DS_ACCELERATOR=cpu``), outside any rehearsal. Whether it fails with the same
error is written to ``architecture_truth.json``, which the table cites.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import resource
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

os.environ.update(DS_ACCELERATOR="cpu", RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1",
                  MASTER_PORT="29577", OMP_NUM_THREADS="1", TRANSFORMERS_VERBOSITY="error")  # fmt: skip

from architecture_rows import ROWS, Rows
from architecture_sets import Case, default_cases, published_cases

from gonogo.virtual.synthetic.program import ProgramOptions, train

TRUTH = Path(__file__).resolve().with_name("architecture_truth.json")
_LAYERS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers", "depth",
           "num_decoder_layers", "num_encoder_layers", "max_window_layers", "num_blocks")  # fmt: skip
_SMALLER = {"n_routed_experts": 8, "num_experts": 8, "num_local_experts": 8, "encoder_hash_byte_group_vocab": 1000}
"""What is made smaller where it is larger, and decides nothing but the size."""
_MAX_PARAMETERS = 4_000_000_000
_MAX_BYTES = 18 << 30
"""Memory of a training, beyond which it fails by itself, and not the machine."""
_TWO_DTYPES = re.compile(r"expected (scalar type \S+ but found|\w+ and \w+ to have the same dtype, but got).*")
"""The same refusal, as different kernels of a matrix product say it."""
_SECONDS = 200
"""Processor time after which a training is ended."""


def shrunk(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration with two layers wherever it has more, and lists of layers as short."""
    few: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, dict):
            few[name] = shrunk(value)
        elif name in _LAYERS and isinstance(value, int) and value > 2:
            few[name] = 2
        elif isinstance(value, int) and value > _SMALLER.get(name, value):
            few[name] = _SMALLER[name]
        elif isinstance(value, list) and name in ("layer_types", "mlp_layer_types", "layers_block_type"):
            few[name] = value[:2]
        else:
            few[name] = value
    return few


def parameters_of(folder: Path, model_class: str) -> int | None:
    """Parameters of the shrunk model; None where it can't be made, with or without memory."""
    import torch
    import transformers

    try:
        config = transformers.AutoConfig.from_pretrained(folder / "config.json")
        with torch.device("meta"):
            model = getattr(transformers, model_class)(config)
    except Exception:
        return None
    return sum(parameter.numel() for parameter in model.parameters())


def is_read(folder: Path) -> bool:
    """Whether transformers reads the configuration."""
    from transformers import AutoConfig

    try:
        AutoConfig.from_pretrained(folder / "config.json")
    except Exception:
        return False
    return True


def trained_for_real(case: Case, folder: Path) -> str:
    """The error that the shrunk model's training ends with; empty where it ends well, a reason where it can't be."""
    small = Case(case.set, case.name, case.model_class, shrunk(case.config), "zero3", min(case.seq_len, 128), 1)
    small.written(folder)
    if not is_read(folder):  # a list of layers that two can't have: the whole, which fails as it is made
        small = replace(small, config=case.config)
        small.written(folder)
    count = parameters_of(folder, case.model_class)
    if count is not None and count > _MAX_PARAMETERS:
        return f"not tried: {count / 1e9:.1f}B parameters in two layers"
    config = json.loads((folder / "ds.json").read_text())
    config["optimizer"]["params"]["torch_adam"] = True
    (folder / "ds.json").write_text(json.dumps(config))
    return _forked(ProgramOptions(str(folder / "config.json"), str(folder / "ds.json"), small.seq_len, 1, 1))


def _forked(options: ProgramOptions) -> str:
    """The error that a child's training ends with."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
            resource.setrlimit(resource.RLIMIT_DATA, (_MAX_BYTES, _MAX_BYTES))
            silence = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silence, 1)
            os.dup2(silence, 2)
            train(options)
        except BaseException as error:
            kind = type(error)
            name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
            os.write(send, f"{name}: {str(error).strip()}".encode()[:4000])
        finally:
            os._exit(0)
    os.close(send)
    with os.fdopen(receive, encoding="utf-8", errors="replace") as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    return said.strip().partition("\n")[0] if not status else f"ended with status {status}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names, classes or model types, with commas between")
    wanted = set(filter(None, parser.parse_args().only.split(",")))
    for name in ("deepspeed.runtime.zero.stage3", "accelerate.utils.deepspeed", "transformers.trainer"):
        importlib.import_module(name)  # once for all children
    rows = Rows.read(ROWS).by_case
    truth: dict[str, dict[str, Any]] = json.loads(TRUTH.read_text()) if TRUTH.exists() else {}
    for case in [*published_cases(), *default_cases()]:
        row = rows.get((case.set, case.name, case.model_class, case.strategy))
        if row is None or row["verdict"] != "NO-GO" or row["outcome"] != "raised":
            continue
        if wanted and not {case.name, case.model_class, row["model_type"]} & wanted:
            continue
        with tempfile.TemporaryDirectory() as name:
            real = trained_for_real(case, Path(name))
        said = (row.get("error") or row["why"][1]).partition("\n")[0]
        same = bool(real) and _plain(said) == _plain(real)
        truth[f"{row['model_type']}/{row['class']}"] = {"real": real, "rehearsed": said, "same": same}
        TRUTH.write_text(json.dumps(truth, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        print(f"{'same' if same else 'OTHER'}  {case.name} {case.model_class}\n  rehearsed: {said}\n  real: {real}",
              flush=True)  # fmt: skip


def _plain(error: str) -> str:
    """An error without what differs between devices, and without its module's name."""
    kind, _, message = error.partition(":")
    message = _TWO_DTYPES.sub("operands of two dtypes", message)
    return f"{kind.rpartition('.')[2]}:{message.replace('cuda:0', 'cpu').strip()[:80]}"


if __name__ == "__main__":
    main()
