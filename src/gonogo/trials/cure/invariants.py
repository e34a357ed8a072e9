"""What a run learns, and what the user asked it to do: no cure may reach GO by changing these."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gonogo.evidence.field import whole_number
from gonogo.finding import Text, translated
from gonogo.trials.cure.batch import read_batch

if TYPE_CHECKING:
    from gonogo.evidence.run import Run
    from gonogo.trials.cure.trial import Trial

_INVARIANT_ARGUMENTS = (
    *("learning_rate", "num_train_epochs", "max_steps", "lr_scheduler_type", "weight_decay", "max_grad_norm", "seed"),
    *("bf16", "fp16", "lora_rank", "lora_r", "lora_alpha", "lora_target_modules", "target_modules"),
    *("finetuning_type", "tuner_type", "train_type", "load_in_4bit", "quantization_bit"),
    *("model_name_or_path", "model", "data_path", "dataset", "train_file", "dataset_name"),
    *("max_length", "max_seq_length", "cutoff_len", "seq_len", "model_max_length", "block_size"),
    *("freeze_vit", "freeze_vision_tower", "do_eval", "eval_strategy", "save_strategy", "save_steps", "eval_steps"),
)
"""Arguments that decide what is learned, evaluated and saved, by the names that frameworks and scripts use."""
_INVARIANT_CONFIG_KEYS = (
    ("fp16", "enabled"),
    ("bf16", "enabled"),
    ("gradient_clipping",),
    ("optimizer", "params", "lr"),
    ("optimizer", "params", "weight_decay"),
    ("zero_optimization", "stage3_gather_16bit_weights_on_model_save"),
)
_GATHER = "zero_optimization.stage3_gather_16bit_weights_on_model_save"
_INVARIANT_LABELS = {"samples_a_step": translated("samples per optimizer step")}


def explain_changed_training(before: Trial, after: Trial) -> Text | None:
    """Why the copy would learn or do something else than before; None if no such change is known."""
    if before.run is not None and after.run is not None:
        was, now = _invariant_settings(before.run), _invariant_settings(after.run)
        for name, value in was.items():
            if value is not None and now.get(name) is not None and now[name] != value:
                if name == _GATHER and now[name] is True:
                    continue  # the save has more in it than before
                shown = _INVARIANT_LABELS.get(name, Text(name, name))
                return translated("{name}: {was} would become {now}").format(name=shown, was=value, now=now[name])
    return _explain_reduced_work(before, after)


def _invariant_settings(run: Run) -> dict[str, object]:
    settings: dict[str, object] = {}
    for name in _INVARIANT_ARGUMENTS:
        field = run.arguments.get(name)
        settings[name] = field.truth if field.truth is not None else field.number or field.get()
    for keys in _INVARIANT_CONFIG_KEYS if run.config is not None else ():
        assert run.config is not None
        settings[".".join(keys)] = run.config.get(*keys).get()
    named = whole_number(run.config.get("train_batch_size")) if run.config is not None else None
    batch = read_batch(run)
    settings["samples_a_step"] = named or (batch.samples if batch is not None else None)
    return settings


def _explain_reduced_work(before: Trial, after: Trial) -> Text | None:
    """Whether the program now trains fewer parameters, or skips a phase that it had."""
    if before.record is None or after.record is None:
        return None
    was, now = before.record.ranks[0], after.record.ranks[0]
    if after.record.world_size < before.record.world_size:
        return translated("fewer ranks would take part in training")
    if was.parameter_count and now.parameter_count and was.parameter_count != now.parameter_count:
        return translated("the model would have {now:,} parameters, not {was:,}").format(
            now=now.parameter_count, was=was.parameter_count
        )
    lost = [phase for phase in (*was.expected_phases, *was.phases) if phase not in (*now.expected_phases, *now.phases)]
    if lost and now.outcome == "completed":
        return translated("the run would no longer reach: {phase}").format(phase=", ".join(set(lost)))
    return None
