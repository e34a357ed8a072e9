"""A valid batch for a model: from its own processor if it has one, else from its signature and config."""

from __future__ import annotations

from typing import Any

import torch

from gonogo.evidence.rehearsal.record import GUESSED_BATCH_ASSUMPTION
from gonogo.finding import Text, UserError, translated
from gonogo.virtual.synthetic import media, notes, own_processor, probe, tokens
from gonogo.virtual.synthetic.model import LocatedModel

_CLASSIFIER_NAME_PARTS = ("ForSequenceClassification", "ForImageClassification", "ForAudioClassification",
            "ForVideoClassification", "ForImageClassificationWithTeacher")  # fmt: skip


_PLAIN_TEXT = {"input_ids", "attention_mask", "token_type_ids"}


def build_batch(located_model: LocatedModel, seq_len: int, micro_batch: int) -> dict[str, Any]:
    """The keyword arguments of one forward, with labels if the model accepts them."""
    batch = own_processor.build_processor_batch(located_model, seq_len, micro_batch)
    if batch is None:
        batch = batch_from_signature(located_model, seq_len, micro_batch)
        # A speech model with codebooks takes a row of tokens per position of its text.
        if not set(batch) <= _PLAIN_TEXT or hasattr(located_model.config, "num_codebooks"):
            notes.record_assumption(Text(GUESSED_BATCH_ASSUMPTION, "批次由 forward 的签名与配置生成"))
    _add_labels(batch, located_model, seq_len, micro_batch)
    return batch


def batch_from_signature(located_model: LocatedModel, seq_len: int, micro_batch: int) -> dict[str, Any]:
    """Inputs according to forward's parameter names, with shapes from the config."""
    names = located_model.forward_parameters
    batch: dict[str, Any] = {}
    counts: dict[str, int] = {}
    for kind in media.KINDS:
        inputs = media.media_inputs(kind, located_model, micro_batch)
        if not inputs:
            continue
        marked = kind.name == "image" and tokens.MASK in names
        if tokens.placeholder_token_id(located_model.config, kind.name) is None and not marked:
            batch.update(inputs)
            if kind.name == "audio" and "input_ids" in names and not tokens.has_own_decoder(located_model):
                seq_len = _audio_token_count(located_model, kind, inputs, micro_batch) or seq_len
            continue
        count = probe.count_features(located_model, kind, inputs)
        if count is None and marked:
            raise _missing_processor_error(located_model, kind)
        if count is None or count % micro_batch:
            notes.record_assumption(
                translated("the batch has no {kind}: gonogo could not determine how many tokens one takes").format(
                    kind=kind.name
                )
            )
            continue
        counts[kind.name] = count // micro_batch
        batch.update(inputs)
    hears_alone = any(name in batch for name in media.KINDS[1].inputs) and tokens.has_own_decoder(located_model)
    if "input_ids" in names and (counts or not hears_alone):
        batch.update(tokens.make_text_inputs(located_model, counts, seq_len, micro_batch))
    if "qformer_input_ids" in names:  # InstructBLIP: the instruction again, for its Q-Former
        batch["qformer_input_ids"] = tokens.make_token_ids(located_model.config.qformer_config, micro_batch, 16)
    if not batch and "inputs" in names:  # Perceiver
        batch["inputs"] = torch.zeros(micro_batch, 3, 224, 224)
    return batch


def _missing_processor_error(located_model: LocatedModel, kind: media.Modality) -> UserError:
    return UserError(
        translated(
            "{kind}: its configuration does not say how many tokens an {what} takes: put the model's processor "
            "(processor_config.json, tokenizer) next to its config.json"
        ).format(kind=located_model.config.model_type, what=kind.name)
    )


def _audio_token_count(
    located_model: LocatedModel, kind: media.Modality, inputs: dict[str, Any], micro_batch: int
) -> int | None:
    """The length of an audio input in tokens; a model without audio tokens adds its features to the text's
    embeddings."""
    count = probe.count_features(located_model, kind, inputs)
    return count // micro_batch if count else None


def _add_labels(batch: dict[str, Any], located_model: LocatedModel, seq_len: int, micro_batch: int) -> None:
    """Add labels with the shape for the model's task."""
    names = located_model.forward_parameters
    name = located_model.model_class.__name__
    config = located_model.config
    decodes = tokens.has_own_decoder(located_model)
    channels = getattr(getattr(config, "decoder_config", None), "num_channels", None)
    if decodes and isinstance(channels, int) and "labels" in names:  # Dia: predicts several codebooks at once
        length = min(seq_len, tokens.max_target_length(config))
        batch["labels"] = tokens.make_token_ids(config, micro_batch * channels, length)
        batch["decoder_input_ids"] = batch["labels"].reshape(micro_batch, channels, length).transpose(1, 2).contiguous()
    elif "labels" in names:
        if name.startswith("ForCTC") or name.endswith(("ForCTC", "ForTDT", "ForRNNT")):
            batch["labels"] = tokens.make_token_ids(config, micro_batch, 16)
        elif any(part in name for part in _CLASSIFIER_NAME_PARTS):
            batch["labels"] = torch.zeros(micro_batch, dtype=torch.int64)
        elif decodes:
            batch["labels"] = tokens.make_token_ids(config, micro_batch, min(seq_len, tokens.max_target_length(config)))
        elif "input_ids" in batch:
            batch["labels"] = tokens.make_labels(batch["input_ids"], config)
    elif "return_loss" in names:
        batch["return_loss"] = True
    if decodes and "labels" not in batch and "decoder_input_ids" in names:
        batch["decoder_input_ids"] = tokens.make_token_ids(
            config, micro_batch, min(seq_len, tokens.max_target_length(config))
        )
