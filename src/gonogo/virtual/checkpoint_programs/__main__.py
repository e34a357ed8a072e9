"""``python -m gonogo.virtual.checkpoint_programs merge ADAPTER RESULT``, or ``serve FOLDER``."""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def merge(adapter: str, result: str) -> None:
    """Merge the adapter into its base model with PEFT, and save the result."""
    import peft

    with open(os.path.join(adapter, "adapter_config.json"), encoding="utf-8") as file:
        kind = json.load(file).get("task_type")
    classes: dict[str, Any] = {
        "CAUSAL_LM": peft.AutoPeftModelForCausalLM, "SEQ_CLS": peft.AutoPeftModelForSequenceClassification,
        "SEQ_2_SEQ_LM": peft.AutoPeftModelForSeq2SeqLM, "TOKEN_CLS": peft.AutoPeftModelForTokenClassification,
    }  # fmt: skip
    model = classes.get(kind or "", peft.AutoPeftModelForCausalLM).from_pretrained(adapter)
    model.merge_and_unload().save_pretrained(result)


def serve(folder: str) -> None:
    """Load the model with the class named in its config, and run one forward pass."""
    import torch
    import transformers

    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        names = json.load(file).get("architectures") or []
    known: Any = getattr(transformers, names[0], None) if names else None
    model: Any = (known or transformers.AutoModelForCausalLM).from_pretrained(folder)
    model.eval()
    with torch.no_grad():
        model(**model.dummy_inputs)


if __name__ == "__main__":
    stage, *folders = sys.argv[1:]
    if stage == "merge":
        merge(*folders)
    else:
        serve(*folders)
