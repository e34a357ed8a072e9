"""``from_pretrained`` of a model with missing weights: its checkpoint is first generated from its config."""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
from types import ModuleType
from typing import Any

from gonogo.evidence.rehearsal.record import (
    ALL_RANKS_READ_EVENT,
    FIRST_RANK_HOLDS_ASSUMPTION,
    FIRST_RANK_READS_ASSUMPTION,
)
from gonogo.finding import Text, UserError, translated
from gonogo.virtual.fsdp_loading import first_rank_alone_reads
from gonogo.virtual.lookups.failed_lookups import is_file_here
from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.weights import skeleton
from gonogo.virtual.weights.generated_weights import GeneratedWeights
from gonogo.virtual.weights.model_folders import (
    ADAPTER_CONFIG,
    NO_CONFIG,
    WEIGHT_FILE_NAMES,
    MissingModelError,
    find_model_folder,
    has_weights,
    missing_model_error,
    read_json,
    variant_file_name,
)
from gonogo.virtual.weights.safetensors_files import SafeOpen

CANNOT_BUILD = translated(
    "the weights of {name} are not on this machine, and its checkpoint could not be generated from its config "
    "({why}); put the weights there, or a copy of the folder that has them"
)


def install(patches: Patches, generated_weights: GeneratedWeights, opened_files: set[str]) -> None:
    """Patch every ``from_pretrained`` of transformers, including the auto classes."""
    patches.set_item(os.environ, "HF_DEACTIVATE_ASYNC_LOAD", "1")  # loads in order, for reproducible records

    def patch_models(module: ModuleType) -> None:
        owner: Any = module.PreTrainedModel
        original = owner.from_pretrained.__func__

        @functools.wraps(original)
        def from_pretrained(cls: Any, pretrained_model_name_or_path: Any = None, *args: Any, **kwargs: Any) -> Any:
            before = set(opened_files)
            source = pretrained_model_name_or_path
            if source is not None and kwargs.get("state_dict") is None:
                elsewhere = _ensure_weights(cls, os.fspath(source), kwargs, generated_weights)
                if elsewhere is not None:
                    source, kwargs["subfolder"] = elsewhere, ""
            SafeOpen.counted = bool(kwargs.pop("disable_mmap", False))
            try:
                result = original(cls, source, *args, **kwargs)
            finally:
                SafeOpen.counted = False
            if source is not pretrained_model_name_or_path:
                _restore_name(result, source, os.fspath(pretrained_model_name_or_path))
            if _is_enabled(module, "is_deepspeed_zero3_enabled"):
                generated_weights.tell(FIRST_RANK_READS_ASSUMPTION)
            elif _is_enabled(module, "is_fsdp_enabled"):
                assumptions: tuple[str, ...] = (ALL_RANKS_READ_EVENT,)
                if first_rank_alone_reads(module):
                    assumptions = (FIRST_RANK_READS_ASSUMPTION, FIRST_RANK_HOLDS_ASSUMPTION)
                for event in assumptions:
                    generated_weights.tell(event)
            if opened_files - before:
                count = len(opened_files - before)
                generated_weights.tell(
                    f"from_pretrained: read the headers of {count} files of {pretrained_model_name_or_path}, no weights"
                )
            return result

        patches.set(owner, "from_pretrained", classmethod(from_pretrained))

    def patch_auto_classes(module: ModuleType) -> None:
        owner: Any = module._BaseAutoModelClass
        original = owner.from_pretrained.__func__

        @functools.wraps(original)
        def from_pretrained(cls: Any, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> Any:
            _require_model_folder(os.fspath(pretrained_model_name_or_path), kwargs)
            return original(cls, pretrained_model_name_or_path, *args, **kwargs)

        patches.set(owner, "from_pretrained", classmethod(from_pretrained))

    patches.on_undo(after_import("transformers.modeling_utils", patch_models))
    patches.on_undo(after_import("transformers.models.auto.auto_factory", patch_auto_classes))


def _is_enabled(module: ModuleType, name: str) -> bool:
    question = getattr(module, name, None)
    return question is not None and bool(question())


def _model_folder(name: str, kwargs: dict[str, Any]) -> str | None:
    where = {key: kwargs.get(key) for key in ("subfolder", "cache_dir", "revision")}
    return find_model_folder(name, **where)


def _require_model_folder(name: str, kwargs: dict[str, Any]) -> str | None:
    """The model's folder, or None for a single file. Raises MissingModelError if the folder or its config is
    missing."""
    if is_file_here(name) or kwargs.get("gguf_file"):
        return None
    folder = _model_folder(name, kwargs)
    if folder is None:
        raise missing_model_error(name)
    has_config = is_file_here(os.path.join(folder, "config.json"))
    if not has_config and not is_file_here(os.path.join(folder, ADAPTER_CONFIG)) and not _has_config(kwargs):
        raise MissingModelError(NO_CONFIG.format(name=name))
    return folder


def _has_config(kwargs: dict[str, Any]) -> bool:
    return hasattr(kwargs.get("config"), "to_dict")


def _restore_name(result: Any, source: str, name: str) -> None:
    """Restore the requested name on a model that was loaded from a copy of its folder."""
    model = result[0] if isinstance(result, tuple) else result
    for owner in (model, getattr(model, "config", None)):
        for attribute in ("name_or_path", "_name_or_path"):
            if getattr(owner, attribute, None) == source:
                setattr(owner, attribute, name)


def _ensure_weights(
    model_class: Any, name: str, kwargs: dict[str, Any], generated_weights: GeneratedWeights
) -> str | None:
    """Generate a model's weights if they are missing from its folder.

    Returns the folder to load from if it is not the model's own.
    """
    folder = _require_model_folder(name, kwargs)
    if folder is None:
        return None
    adapter = os.path.join(folder, ADAPTER_CONFIG)
    if not os.path.isfile(os.path.join(folder, "config.json")) and os.path.isfile(adapter):
        base = read_json(adapter).get("base_model_name_or_path")
        if base:
            _ensure_weights(model_class, str(base), {**kwargs, "subfolder": None}, generated_weights)
        return None
    if generated_weights.belongs_to_run(folder):
        return None
    what = os.path.join(folder, variant_file_name(WEIGHT_FILE_NAMES[0], kwargs.get("variant")))
    generated_weights.run_once(what, lambda: make_weights(model_class, name, folder, kwargs, generated_weights))
    place = generated_weights.current_folder(folder)
    return None if place == folder else place


def make_weights(
    model_class: Any, name: str, folder: str, kwargs: dict[str, Any], generated_weights: GeneratedWeights
) -> str | None:
    """Generate a model's weights if its folder has none; returns a sentence about it, or None."""
    config = os.path.join(folder, "config.json")
    raw = read_json(config) if os.path.isfile(config) else {}
    if has_weights(folder, raw, kwargs.get("variant")):
        return None
    given = kwargs["config"] if _has_config(kwargs) else None
    staging = tempfile.mkdtemp(prefix="checkpoint-")
    try:
        with skeleton.isolated_model_build():
            trust = bool(kwargs.get("trust_remote_code")) or model_class.__module__.startswith("transformers_modules")
            stored_class, stored = skeleton.stored_class_and_config(model_class, folder, given, trust)
            model = skeleton.build_on_meta(stored_class, stored, folder)
    except (UserError, ImportError):  # a missing package, which real loading reports as well
        raise
    except Exception as error:
        raise MissingModelError(_cannot_build_message(name, error)) from error
    try:
        with skeleton.isolated_model_build():
            skeleton.write_weights(model, staging)
    except Exception as error:
        raise MissingModelError(_cannot_build_message(name, error)) from error
    files = [file for file in os.listdir(staging) if file.endswith((".safetensors", ".safetensors.index.json"))]
    place = generated_weights.writable_folder(folder)
    _delete_conflicting_files(place, files)
    for file in files:
        os.replace(os.path.join(staging, file), os.path.join(place, variant_file_name(file, kwargs.get("variant"))))
    shutil.rmtree(staging, ignore_errors=True)
    return f"{name} has no weights here; its checkpoint is taken to be {stored_class.__name__}'s"


def _cannot_build_message(name: str, error: Exception) -> Text:
    why = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    return CANNOT_BUILD.format(name=name, why=why)


def _delete_conflicting_files(folder: str, written_files: list[str]) -> None:
    """Delete files that would conflict with the generated checkpoint."""
    stale = ["model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json"]
    paths = [os.path.join(folder, file) for file in stale]
    snapshots, _, revision = folder.rstrip("/").rpartition("/")
    if os.path.basename(snapshots) == "snapshots":  # the cache's markers for files that don't exist on the hub
        paths += [
            os.path.join(os.path.dirname(snapshots), ".no_exist", revision, file) for file in (*stale, *written_files)
        ]
    for path in paths:
        if os.path.lexists(path):
            os.remove(path)
