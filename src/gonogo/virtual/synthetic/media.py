"""Image and audio inputs of a model, created with transformers' processor for its type."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from gonogo.finding import UserError, translated
from gonogo.virtual.synthetic.model import LocatedModel
from gonogo.virtual.synthetic.tokens import nested_configs


@dataclass(frozen=True)
class Modality:
    """Images or audio: the names of its inputs, its part of a config, and its encoders."""

    name: str
    inputs: tuple[str, ...]
    config: tuple[str, ...]
    encoders: tuple[str, ...]


KINDS = (
    Modality(
        "image",
        ("pixel_values", "flattened_patches", "pixel_values_images"),
        ("vision_config",),
        ("get_image_features",),
    ),
    Modality(
        "audio",
        ("input_features", "input_values", "audio_values", "audio_input_features"),
        ("audio_config", "speech_config", "encoder_config", "audio_encoder_config"),
        ("get_audio_features", "get_speech_features"),
    ),
)
_AUDIO_SECONDS = 2


def modality_config(located_model: LocatedModel, kind: Modality) -> Any:
    """The vision or audio part of the config, or all of it if there is no such part."""
    for part in [located_model.config, *nested_configs(located_model.config)]:
        for name in kind.config:
            inner = getattr(part, name, None)
            if inner is not None and hasattr(inner, "to_dict"):
                return inner
    return located_model.config


def media_inputs(kind: Modality, located_model: LocatedModel, rows: int) -> dict[str, Any]:
    """One image or audio clip per row, as arguments of forward; empty if the model takes none."""
    takes = located_model.forward_parameters
    name = next((name for name in kind.inputs if name in takes), None)
    if name is None:
        return {}
    config = modality_config(located_model, kind)
    made = (
        _image_inputs(located_model, config, rows)
        if kind.name == "image"
        else _audio_inputs(located_model, config, rows)
    )
    if made and name not in made:
        first = next((n for n in (*kind.inputs, "input_features", "input_values") if n in made), None)
        made = {**made, name: made.pop(first)} if first is not None else {}
    if kind.name == "audio" and name in made and made[name].dim() == 2 and _feature_width(config) is not None:
        made = {}  # the extractor returns the waveform, but the model takes features
    if name not in made:
        made = {name: _zero_images(config, rows) if kind.name == "image" else _zero_audio(config, rows)}
    return {key: value for key, value in made.items() if key in takes}


def make_image(width: int) -> Any:
    """A square image, as an array of rows."""
    row = torch.arange(width)
    return ((row[:, None] + row) % 256).to(torch.uint8)[:, :, None].repeat(1, 1, 3).numpy()


def make_sine_tone(sample_count: int) -> Any:
    """A sine tone, so that the audio is not silent."""
    return torch.sin(torch.arange(sample_count) / 20).numpy()


def _candidate_model_types(located_model: LocatedModel, config: Any, supported_types: Any) -> list[str]:
    """Model types under which a processor may be registered, most specific first."""
    named = [located_model.config.model_type, getattr(config, "model_type", "")]
    family = named[0]
    while "_" in family:
        family = family.rpartition("_")[0]
        named.append(family)
    return [name for name in named if name in supported_types]


def _image_inputs(located_model: LocatedModel, config: Any, rows: int) -> dict[str, Any]:
    processor = _image_processor(located_model, config)
    if processor is None:
        return {}
    image = make_image(image_size(config) or 224)
    for shape in ([image] * rows, [[image]] * rows):
        with contextlib.suppress(Exception):  # a processor with another input format or image size
            return _output_tensors(processor(shape, return_tensors="pt"))
    return {}


def _image_processor(located_model: LocatedModel, config: Any) -> Any:
    import transformers
    from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES as KNOWN
    from transformers.utils import is_torchvision_available

    for name in _candidate_model_types(located_model, config, KNOWN):
        entry = KNOWN[name]
        if isinstance(entry, dict):
            backends = [entry.get("torchvision")] if is_torchvision_available() else []
            classes = [*backends, entry.get("pil"), entry.get("torchvision")]
        else:
            classes = list(entry)[::-1] if is_torchvision_available() else list(entry)
        missing: ImportError | None = None
        for class_name in filter(None, classes):
            made = getattr(transformers, class_name, None)
            try:
                if made is not None:
                    return made(**_settings_from_config(made(), config))
            except ImportError as error:
                missing = error
            except Exception:  # a setting that this processor doesn't have
                continue
        if missing is not None:
            raise _missing_library_error(located_model, str(classes[-1]), missing)
    return None


def _missing_library_error(located_model: LocatedModel, processor: str, error: ImportError) -> UserError:
    """The error that says what to install for the model's processor."""
    libraries = sorted(set(re.findall(r"the (\w[\w.-]*) library", str(error)))) or [str(error).strip().split("\n")[0]]
    return UserError(
        translated(
            "{kind}: {processor}, which builds its inputs, needs {libraries}: install what is missing and try again"
        ).format(kind=located_model.config.model_type, processor=processor, libraries=", ".join(libraries))
    )


def _settings_from_config(processor: Any, config: Any) -> dict[str, Any]:
    """Processor settings that the model's config overrides."""
    settings: dict[str, Any] = {}
    for name, ours in (("patch_size", "patch_size"), ("temporal_patch_size", "temporal_patch_size"),
                       ("merge_size", "spatial_merge_size")):  # fmt: skip
        value = getattr(config, ours, None)
        stated = getattr(processor, name, None)
        if isinstance(value, int) and stated is not None and not isinstance(stated, dict):
            settings[name] = value
    width = image_size(config)
    size = getattr(processor, "size", None)
    if width is None or not size:
        return settings
    keys = set(dict(size))
    if {"height", "width"} <= keys:
        settings["size"] = {"height": width, "width": width}
    elif keys == {"shortest_edge"}:
        settings["size"] = {"shortest_edge": width}
    if getattr(processor, "crop_size", None):
        settings["crop_size"] = {"height": width, "width": width}
    return settings


def image_size(config: Any) -> int | None:
    """The image size that a vision tower requires, or None if any size works."""
    size = getattr(config, "image_size", None)
    if isinstance(size, list | tuple) and size:
        size = size[0]
    return size if isinstance(size, int) and size > 0 else None


def _zero_images(config: Any, rows: int) -> torch.Tensor:
    width = image_size(config) or 224
    channels = getattr(config, "num_channels", None) or getattr(config, "in_channels", None) or 3
    return torch.zeros(rows, channels, width, width)


def _audio_inputs(located_model: LocatedModel, config: Any, rows: int) -> dict[str, Any]:
    import transformers
    from transformers.models.auto.feature_extraction_auto import FEATURE_EXTRACTOR_MAPPING_NAMES as KNOWN

    for name in _candidate_model_types(located_model, config, KNOWN):
        made = getattr(transformers, KNOWN[name], None)
        settings: dict[str, Any] = {}
        bins = mel_bins(config)
        if bins is not None:
            settings["feature_size"] = bins
        for chosen in (settings, {}):
            with (
                _explain_import_errors(located_model, KNOWN[name]),
                contextlib.suppress(TypeError, ValueError, AttributeError),
            ):
                extractor = made(**chosen)  # type: ignore[misc]
                rate = getattr(extractor, "sampling_rate", 16000)
                return _extract_audio(extractor, [make_sine_tone(rate * _AUDIO_SECONDS)] * rows, rate)
    return {}


@contextlib.contextmanager
def _explain_import_errors(located_model: LocatedModel, processor: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise _missing_library_error(located_model, processor, error) from error


def _extract_audio(feature_extractor: Any, waveforms: list[Any], sample_rate: int) -> dict[str, Any]:
    made = _output_tensors(
        feature_extractor(waveforms, sampling_rate=sample_rate, return_tensors="pt", return_attention_mask=True)
    )
    if "attention_mask" in made:  # next to text, the audio mask has a name of its own
        made["feature_attention_mask"] = made["input_features_mask"] = made["attention_mask"]
        made["padding_mask"] = made["attention_mask"]
    return made


def mel_bins(config: Any) -> int | None:
    """The number of mel bins of an audio tower, if its config states it."""
    names = ("num_mel_bins", "input_feat_per_channel", "feature_size", "n_mels", "num_mels", "input_feat_size")
    return next((v for v in (getattr(config, n, None) for n in names) if isinstance(v, int)), None)


def _feature_width(config: Any) -> int | None:
    """The feature width per time step of an encoder without a convolution over the waveform."""
    width = getattr(config, "feature_projection_input_dim", None)
    return width if isinstance(width, int) else None


def _zero_audio(config: Any, rows: int) -> torch.Tensor:
    bins, width = mel_bins(config), _feature_width(config)
    if width is not None:
        return torch.zeros(rows, 100 * _AUDIO_SECONDS, width)
    if bins is None:
        return torch.zeros(rows, 16000 * _AUDIO_SECONDS)
    positions = getattr(config, "max_source_positions", None)
    frames = 2 * positions if isinstance(positions, int) else 100 * _AUDIO_SECONDS
    return torch.zeros(rows, bins, frames)


def _output_tensors(processor_outputs: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in dict(processor_outputs).items():
        tensor = value if isinstance(value, torch.Tensor) else None
        if tensor is None:
            with contextlib.suppress(Exception):  # a list of arrays of different lengths
                tensor = torch.as_tensor(value)
        if tensor is not None:
            found[key] = tensor
    return found
