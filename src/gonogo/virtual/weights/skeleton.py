"""The checkpoint that ``save_pretrained`` of a model would have written, generated from its config alone.

The model is built on the meta device, isolated from the program: without virtual devices, DeepSpeed's ``zero.Init``
or changes to the random state; then transformers' own ``save_pretrained`` writes it to files whose data are holes. So
names, tied weights, renamed and split weights are exactly those of transformers.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import random
import sys
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch

from gonogo.virtual import private
from gonogo.virtual.reentrancy import InternalWork
from gonogo.virtual.weights.model_folders import read_json


@contextlib.contextmanager
def isolated_model_build() -> Iterator[None]:
    """Context without dispatch modes, ``zero.Init`` and ZeRO-3 in transformers; restores the random states."""
    zero = sys.modules.get("deepspeed.runtime.zero.partition_parameters")
    integration = sys.modules.get("transformers.integrations.deepspeed")
    numpy = sys.modules.get("numpy")
    python_state, numpy_state = random.getstate(), numpy.random.get_state() if numpy is not None else None
    config = getattr(integration, "_hf_deepspeed_config_weak_ref", None)
    with contextlib.ExitStack() as stack:
        if zero is not None and getattr(zero, "zero_init_context", None):
            zero.shutdown_init_context()
            stack.callback(zero.restore_init_context)
        if config is not None:
            integration._hf_deepspeed_config_weak_ref = None  # type: ignore[union-attr]
            stack.callback(setattr, integration, "_hf_deepspeed_config_weak_ref", config)
        for module in (integration, sys.modules.get("transformers.modeling_utils")):
            if hasattr(module, "is_deepspeed_zero3_enabled"):  # axolotl's always returns True
                stack.enter_context(mock.patch.object(module, "is_deepspeed_zero3_enabled", return_value=False))
        stack.enter_context(_quiet_transformers_logging())
        stack.enter_context(private.without_dispatch_modes())
        stack.enter_context(torch.no_grad())
        InternalWork.now = True
        try:
            yield
        finally:
            InternalWork.now = False
            random.setstate(python_state)
            if numpy is not None and numpy_state is not None:
                numpy.random.set_state(numpy_state)


@contextlib.contextmanager
def _quiet_transformers_logging() -> Iterator[None]:
    """Silence transformers, so that the log shows only the program's own loading and saving."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def stored_class_and_config(
    model_class: Any, folder: str, passed_config: Any, trust_remote_code: bool
) -> tuple[Any, Any]:
    """The class and config with which the checkpoint in ``folder`` was saved, from its config.json if possible.

    ``passed_config`` is the config that the program passed, or None.
    """
    import transformers

    if not os.path.isfile(os.path.join(folder, "config.json")):
        return model_class, passed_config
    raw = read_json(os.path.join(folder, "config.json"))
    config_class = _config_class(model_class, raw, passed_config)
    config = config_class.from_pretrained(folder) if config_class is not None else passed_config
    name = next(iter(raw.get("architectures") or ()), None)
    if name is None or name == model_class.__name__:
        return model_class, config
    named = getattr(transformers, name, None)
    if named is None and trust_remote_code:
        named = _remote_class(raw, name, folder)
    if named is not None and isinstance(config, getattr(named, "config_class", None) or ()):
        return named, config
    return model_class, config


def _config_class(model_class: Any, raw: dict[str, Any], passed_config: Any) -> Any:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    own = model_class.config_class
    if own is not None and getattr(own, "model_type", None) == raw.get("model_type"):
        return own
    if passed_config is not None and getattr(passed_config, "model_type", None) == raw.get("model_type"):
        return type(passed_config)
    if raw.get("model_type") in CONFIG_MAPPING:
        return CONFIG_MAPPING[raw["model_type"]]
    return own or (type(passed_config) if passed_config is not None else None)


def _remote_class(raw: dict[str, Any], name: str, folder: str) -> Any:
    from transformers.dynamic_module_utils import get_class_from_dynamic_module

    for reference in (raw.get("auto_map") or {}).values():
        text = reference if isinstance(reference, str) else next((r for r in reference if r), "")
        if text.partition("--")[2] or text.rpartition(".")[2] != name:
            continue
        return get_class_from_dynamic_module(text, folder)
    return None


def build_on_meta(model_class: Any, config: Any, folder: str) -> Any:
    """Build the model on the meta device, with tied weights. Call inside :func:`isolated_model_build`."""
    dtype = _dtype_of(config)
    context = _init_contexts(model_class, dtype)
    with context:
        model = model_class(config)
        quantization = getattr(config, "quantization_config", None)
        if quantization is not None:
            _quantize(model, quantization)
    model.tie_weights()
    return model


def _dtype_of(config: Any) -> torch.dtype:
    stored = getattr(config, "dtype", None) or getattr(config, "torch_dtype", None)
    if isinstance(stored, dict):
        stored = stored.get("")
    dtype = getattr(torch, stored.removeprefix("torch."), None) if isinstance(stored, str) else stored
    return dtype if isinstance(dtype, torch.dtype) else torch.float32


@contextlib.contextmanager
def _init_contexts(model_class: Any, dtype: torch.dtype) -> Iterator[None]:
    """transformers' own contexts for building on the meta device, also in older versions."""
    from transformers import modeling_utils

    before = torch.get_default_dtype()
    with contextlib.ExitStack() as stack:
        own = getattr(model_class, "get_init_context", None)  # since transformers 4.50
        parameters = own.__func__.__code__.co_varnames if own is not None else ()
        known = {"dtype": dtype, "is_quantized": False, "_is_ds_init_called": False, "allow_all_kernels": False}
        wanted = {name: value for name, value in known.items() if name in parameters}
        for context in own(**wanted) if own is not None else [torch.device("meta")]:
            stack.enter_context(context)
        no_weights = getattr(modeling_utils, "no_init_weights", None)
        if no_weights is not None and "dtype" not in parameters:
            stack.enter_context(no_weights())
        torch.set_default_dtype(dtype)
        try:
            yield
        finally:
            torch.set_default_dtype(before)


def _quantize(model: Any, quantization: Any) -> None:
    """Replace modules as the quantizer does before it loads a quantized checkpoint."""
    from transformers.quantizers import AutoHfQuantizer

    quantizer = AutoHfQuantizer.from_config(quantization, pre_quantized=True)
    quantizer.preprocess_model(model=model, device_map=None, keep_in_fp32_modules=[], checkpoint_files=[])


def write_weights(model: Any, folder: str) -> None:
    """Write the model's weights to ``folder``. Call inside :func:`isolated_model_build`, with virtual writers
    installed."""
    import transformers.modeling_utils as modeling

    os.makedirs(folder, exist_ok=True)
    # Newer transformers saves only on rank 0 if there is a process group; each rank needs the files here.
    vars(model)["should_save_on_this_rank"] = lambda is_main_process: is_main_process
    if hasattr(modeling, "revert_weight_conversion"):
        inspect.unwrap(type(model).save_pretrained)(model, folder, max_shard_size="5GB")  # bypasses save tracking
    else:
        _write_with_safetensors(model, folder)


def _write_with_safetensors(model: Any, folder: str) -> None:
    """Save directly, for transformers before 5, whose ``save_pretrained`` treats all meta tensors as one shared
    tensor."""
    import json

    from safetensors.torch import save_file

    ignored = set(getattr(model, "_keys_to_ignore_on_save", None) or ())
    tied = set(getattr(model, "_tied_weights_keys", None) or ())
    identities: dict[int, list[str]] = {}
    holders = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers(remove_duplicate=False))
    state = {name: tensor for name, tensor in model.state_dict().items() if name not in ignored}
    for name in state:
        identities.setdefault(id(holders.get(name, state[name])), []).append(name)
    kept = {sorted(names, key=lambda name: (name in tied, names.index(name)))[0] for names in identities.values()}
    state = {name: tensor for name, tensor in state.items() if name in kept}
    shards, index = _split_into_shards(state)
    for shard, names in shards.items():
        save_file({name: state[name] for name in names}, os.path.join(folder, shard), metadata={"format": "pt"})
    if index is not None:
        with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="utf-8") as file:
            json.dump(index, file)


_SHARD_BYTES = 5_000_000_000
"""The size limit of a file, as transformers' ``5GB``; as a number, because huggingface_hub 0.22 compares it as such."""


def _split_into_shards(state: dict[str, torch.Tensor]) -> tuple[dict[str, list[str]], dict[str, Any] | None]:
    """The names of the tensors in each file, and the index if there are several files."""
    try:
        from huggingface_hub import split_torch_state_dict_into_shards  # since 0.22
    except ImportError:
        from transformers.modeling_utils import shard_checkpoint  # in transformers until then

        shards, index = shard_checkpoint(state, max_shard_size="5GB", weights_name="model.safetensors")
        return {file: list(tensors) for file, tensors in shards.items()}, index
    split = split_torch_state_dict_into_shards(
        state, filename_pattern="model{suffix}.safetensors", max_shard_size=_SHARD_BYTES
    )
    index = {"metadata": split.metadata, "weight_map": split.tensor_to_filename} if split.is_sharded else None
    return split.filename_to_tensors, index
