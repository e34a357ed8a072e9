"""A checkpoint in litgpt's own format, made by litgpt's own model class, then one of litgpt's commands.

    python litgpt_checkpoint.py --folder checkpoints/google/gemma-2b --tokenizer google/gemma-2b finetune lora …

``--tokenizer`` is the repository whose tokenizer is taken. ``litgpt download`` would convert published weights instead;
a rehearsal needs only their names, shapes and types, which are the class's. They aren't on the device ``meta``:
litgpt's loader reads storages, which such tensors lack.
"""

import argparse
import sys
from pathlib import Path

import torch
from huggingface_hub import snapshot_download
from litgpt.__main__ import main
from litgpt.config import Config
from litgpt.model import GPT
from litgpt.utils import save_config


def make(folder: Path, repository: str) -> None:
    """Write what ``litgpt download`` leaves in a checkpoint's folder."""
    snapshot_download(repository, local_dir=folder, allow_patterns=["tokenizer*", "generation_config.json"])
    config = Config.from_name(folder.name)
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    weights = GPT(config).state_dict()
    torch.set_default_dtype(default)
    torch.save(weights, folder / "lit_model.pth")
    save_config(config, folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--tokenizer")
    asked, rest = parser.parse_known_args()
    # Fabric starts this program once more for each further rank, with litgpt's own arguments alone.
    if asked.folder is not None and not (asked.folder / "lit_model.pth").exists():
        make(asked.folder, asked.tokenizer)
    sys.argv[1:] = rest
    main()
