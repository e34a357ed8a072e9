"""Checkpoints under names as training runs leave them: what vLLM's own loader does with them, and what gonogo says.

    python benchmarks/engine_names.py [--really] [--only WORDS]

``--really`` needs vLLM, of which the models' classes and loaders are run on the CPU, and writes to
``tests/life/engine_names.json``; without it gonogo's answers are compared with that.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent.parent / "tests" / "life"), str(Path(__file__).parent.parent / "tests")]

from engine_names import CELLS, MAX_RANK, TRUTH, NamesCell, answer, differs, plain_names, write  # noqa: E402
from truth_cells import chosen_cells  # noqa: E402


class VllmOnCpu:
    """vLLM's loader, in this process, of one rank."""

    def __init__(self) -> None:
        os.environ |= {"CUDA_VISIBLE_DEVICES": "", "VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1"}
        import torch
        from vllm.model_executor.models import registry

        registry._run_in_subprocess = lambda asked: asked()
        torch.accelerator.empty_cache = lambda: None
        self._formed = False

    def load(self, folder: str) -> tuple[Any, set[str]]:
        """The model, and the names of its weights that were loaded."""
        from vllm.config import DeviceConfig, LoadConfig, ModelConfig, VllmConfig, set_current_vllm_config
        from vllm.distributed import init_distributed_environment, initialize_model_parallel
        from vllm.model_executor.model_loader import get_model_loader

        model_config = ModelConfig(
            model=folder, tokenizer=folder, skip_tokenizer_init=True, dtype="float32", enforce_eager=True,
            max_model_len=32,
        )  # fmt: skip
        config = VllmConfig(
            model_config=model_config, load_config=LoadConfig(), device_config=DeviceConfig(device="cpu")
        )
        with set_current_vllm_config(config):
            if not self._formed:
                init_distributed_environment(1, 0, "tcp://127.0.0.1:29733", 0, "gloo")
                initialize_model_parallel(1, 1)
                self._formed = True
            loader: Any = get_model_loader(config.load_config)
            got: set[str] = set()
            track = loader.track_weights_loading

            def tracking(model: Any, names: set[str], *given: Any, **named: Any) -> None:
                got.update(names)
                track(model, names, *given, **named)

            loader.track_weights_loading = tracking
            shards: set[str] = set()
            self._note_shards(shards)
            return loader.load_model(vllm_config=config, model_config=model_config), got | shards

    @staticmethod
    def _note_shards(noted: set[str]) -> None:
        """Names as they are in the files: of a fused weight it counts which of its parts came."""
        from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

        given = getattr(DefaultModelLoader, "_plain_get_all_weights", DefaultModelLoader.get_all_weights)
        DefaultModelLoader._plain_get_all_weights = given

        def get_all_weights(self: Any, *words: Any) -> Any:
            for name, weight in given(self, *words):
                noted.add(f"file:{name}")
                yield name, weight

        DefaultModelLoader.get_all_weights = get_all_weights

    def adapt(self, base: str, adapter: str) -> set[str]:
        """The names of the adapter's layers that are put to a layer of the model."""
        from vllm.config.lora import LoRAConfig
        from vllm.lora.lora_model import LoRAModel
        from vllm.lora.peft_helper import PEFTHelper
        from vllm.lora.utils import get_supported_lora_modules

        model, _ = self.load(base)
        told = PEFTHelper.from_local_dir(adapter, 64)
        told.validate_legal(LoRAConfig(max_lora_rank=MAX_RANK))
        expected: set[str] = set()
        for one in get_supported_lora_modules(model):
            expected.update(model.packed_modules_mapping.get(one, [one]))
        mapper = getattr(model, "hf_to_vllm_mapper", None)
        read = LoRAModel.from_local_checkpoint(
            adapter, expected, told, lora_model_id=1, device="cpu",
            weights_mapper=mapper.get_rename_mapper() if mapper is not None else None,
        )  # fmt: skip
        own = {name for name, _ in model.named_modules()}
        for packed, parts in model.packed_modules_mapping.items():
            own |= {
                f"{name.rpartition('.')[0]}.{part}" for name in own if name.endswith(f".{packed}") for part in parts
            }
        return {name for name in read.loras if name in own}


def really(engine: VllmOnCpu, cell: NamesCell, folder: Path) -> dict[str, Any]:
    """What vLLM raises, or the weights in transformers' names that it goes without."""
    from safetensors import safe_open

    write(cell, folder)
    base, adapter = str(folder / "base"), str(folder / "adapter")
    try:
        if cell.adapter is not None:
            put = engine.adapt(base, adapter)
            with safe_open(f"{adapter}/adapter_model.safetensors", "pt") as file:
                names = list(file.keys())
            layer = {name: name.removeprefix("base_model.model.").partition(".lora_")[0] for name in names}
            return {"silent": sorted(name for name in names if layer[name] not in put)}
        model, got = engine.load(base)
    except Exception as error:
        return {"raises": f"{type(error).__name__}: {str(error)[:160]}"}
    stacked: dict[str, tuple[str, Any]] = {}
    for module in (model, getattr(model, "model", None)):
        stacked |= getattr(getattr(module, "hf_to_vllm_mapper", None), "orig_to_new_stacked", {})
    plain = {name for name, _ in plain_names(cell)}
    files = {one.removeprefix("file:") for one in got if one.startswith("file:")}
    silent = []
    for name, _ in model.named_parameters():
        parts = [name.replace(fused, part) for part, (fused, _) in stacked.items() if f"{fused}." in f".{name}"]
        parts = [part for part in parts if part in plain]
        if name not in got:
            silent += parts or [name]
        elif parts and name not in files:
            silent += [one for one in parts if one not in files]
    return {"silent": sorted(silent)}


def main() -> None:
    """Run the cells, or compare."""
    for_real, cells, truth = chosen_cells(__doc__, CELLS, TRUTH)
    if for_real:
        engine = VllmOnCpu()
        for cell in cells:
            with tempfile.TemporaryDirectory() as name:
                truth[cell.name] = really(engine, cell, Path(name))
            print(f"{cell.name}: {json.dumps(truth[cell.name])[:300]}", flush=True)
            TRUTH.write_text(json.dumps(truth, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        return
    right = 0
    for cell in cells:
        with tempfile.TemporaryDirectory() as name:
            said = answer(cell, Path(name))
        wrong = differs(cell, said, truth.get(cell.name))
        right += not wrong
        print(
            f"{'wrong' if wrong else 'right'}: {json.dumps(said)[:160]}: {cell.name}", *wrong, sep="\n    ", flush=True
        )
    print(f"{right} of {len(cells)} as vLLM's own classes")


if __name__ == "__main__":
    main()
