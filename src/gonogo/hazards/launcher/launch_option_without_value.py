from gonogo.hazards.facts.launch_facts import split_words
from gonogo.hazards.rule import Findings, Hazard, Launch, Run, translated

# Options of TrainingArguments and frameworks that need a value.
_OPTIONS_WITH_REQUIRED_VALUE = split_words(
    """
    learning_rate num_train_epochs max_steps per_device_train_batch_size per_device_eval_batch_size
    gradient_accumulation_steps warmup_ratio warmup_steps weight_decay lr_scheduler_type logging_steps save_steps
    save_strategy eval_steps eval_strategy evaluation_strategy save_total_limit output_dir model_name_or_path seed
    max_grad_norm dataloader_num_workers model_max_length max_seq_length cutoff_len lora_rank lora_alpha lora_dropout
    ddp_timeout deepspeed_config data_path dataset
    """
)


class LaunchOptionWithoutValue(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """The program's options that are known to need a value."""
        declared = [script for script in run.scripts if b"store_true" in script.source.data]
        for option in launch.options:
            if option.name not in _OPTIONS_WITH_REQUIRED_VALUE or option.values or option.attached:
                continue
            if any(option.name.encode("utf-8", "surrogateescape") in script.source.data for script in declared):
                continue
            yield self.finding(
                translated("--{name} has no value: argparse stops with “expected one argument”.").format(
                    name=option.name
                ),
                cure=translated("Give --{name} a value, or remove it").format(name=option.name),
                spans=option.word.place.span(),
            )
