from gonogo.evidence.launch.command_line import CommandOptions
from gonogo.hazards.facts.launch_facts import split_words
from gonogo.hazards.rule import Findings, Hazard, Launch, Run, Text, translated

# Single-valued options of TrainingArguments, trainers and frameworks: the last one counts.
_SINGLE_VALUE_OPTIONS = split_words(
    """
    bf16 fp16 tf32 learning_rate lr num_train_epochs max_steps per_device_train_batch_size
    per_device_eval_batch_size gradient_accumulation_steps gradient_checkpointing warmup_ratio warmup_steps
    weight_decay lr_scheduler_type logging_steps save_steps save_strategy eval_steps eval_strategy
    evaluation_strategy save_total_limit output_dir model_name_or_path model deepspeed deepspeed_config seed
    max_grad_norm optim dataloader_num_workers max_length max_seq_length cutoff_len model_max_length ddp_timeout
    report_to lora_rank lora_r lora_alpha lora_dropout train_type tuner_type finetuning_type stage template
    torch_dtype attn_impl attn_implementation freeze_vit zero_stage train_batch_size micro_batch_size data_path
    remove_unused_columns lazy_preprocess
    """
)


class LaunchOptionGivenTwice(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """The launcher's own options, and options of the program known to take a single value."""
        own = [name for name in launch.launcher_options.duplicates if name not in ("env", "tee")]
        yield from self._build_finding(launch.launcher_options, own)
        yield from self._build_finding(
            launch.options, [name for name in launch.options.duplicates if name in _SINGLE_VALUE_OPTIONS]
        )

    def _build_finding(self, options: CommandOptions, names: list[str]) -> Findings:
        for name in names:
            fields = options.all_values(name)
            values = [str(field.value) for field in fields if field.known]
            if len(values) < len(fields) or len({_canonical_value(value) for value in values}) < 2:
                continue
            if len({(field.place.start, field.place.end) for field in fields if field.place}) < len(fields):
                continue  # a variable that the script appends to
            given = [f"--{name} {value}" for value in dict.fromkeys(values)]
            yield self.finding(
                translated("--{name} is given {count} times: {earlier}, then {last}, which takes effect.").format(
                    name=name, count=len(values), earlier=", ".join(values[:-1]), last=values[-1]
                ),
                cure=translated("Keep only one of them: {all}").format(
                    all=Text(" or ".join(given), " 或 ".join(given))
                ),
                spans=(
                    fields[0].span(translated("this value has no effect")),
                    fields[-1].span(translated("this value takes effect")),
                ),
            )


def _canonical_value(value: str) -> str:
    lowered = value.strip().lower()
    try:
        return repr(float(lowered))
    except ValueError:
        return lowered
