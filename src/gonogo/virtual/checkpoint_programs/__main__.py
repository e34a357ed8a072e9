"""``python -m gonogo.virtual.checkpoint_programs merge ADAPTER RESULT``, ``serve FOLDER``, or ``vllm ARGUMENTS``.

``ARGUMENTS`` are those of ``vllm serve``.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from gonogo.finding import translated


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


_OTHER_READING = (
    "--load-format", "--quantization", "-q", "--model-impl", "--hf-overrides", "--config", "--config-format",
    "--hf-config-path", "--model-loader-extra-config",
)  # fmt: skip
"""Options of ``vllm serve`` by which weights are read in another way."""


def serve_with_vllm(words: list[str]) -> None:
    """Load the model and the adapters of ``vllm serve`` under the names by which vLLM's loaders find weights."""
    from gonogo.virtual.rollout.engine_checkpoint import load_engine_weights
    from gonogo.virtual.unsupported import UnsupportedOperator
    from gonogo.virtual.weights.model_folders import find_model_folder

    options = _parse_options(words)
    what = " ".join(["vllm serve", *words])
    for name in options:
        if name in _OTHER_READING:
            raise UnsupportedOperator(
                what,
                translated("{option} changes how vLLM reads weights, which gonogo does not model").format(option=name),
            )
    model = next(iter(options.get("", []) + options.get("--model", [])), None)
    folder = model if model is None or os.path.isdir(model) else find_model_folder(model)
    if folder is None:
        raise UnsupportedOperator(what, translated("the command names no model that is on this machine"))
    adapters = [_parse_adapter(one) for one in options.get("--lora-modules", [])]
    if adapters and "--enable-lora" not in options:
        raise RuntimeError("LoRA is not enabled. Use --enable-lora to enable LoRA.")
    rank = int(options.get("--max-lora-rank", ["16"])[0])
    load_engine_weights(folder, dict(adapters), rank, UnsupportedOperator)()


def _parse_options(words: list[str]) -> dict[str, list[str]]:
    """The values of each option; under an empty name those before the first one."""
    found: dict[str, list[str]] = {"": []}
    name = ""
    for word in words:
        if word.startswith("-"):
            name, equals, value = word.partition("=")
            name = name.replace("_", "-")
            found.setdefault(name, []).extend([value] if equals else [])
        else:
            found[name].append(word)
    return found


def _parse_adapter(word: str) -> tuple[str, str]:
    """``name=path``, or JSON with both."""
    if word.startswith("{"):
        options = json.loads(word)
        return str(options["name"]), str(options["path"])
    name, _, path = word.partition("=")
    return name, path


if __name__ == "__main__":
    stage, *folders = sys.argv[1:]
    if stage == "merge":
        merge(*folders)
    elif stage == "vllm":
        serve_with_vllm(folders)
    else:
        serve(*folders)
