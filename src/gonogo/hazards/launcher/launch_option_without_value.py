from gonogo.hazards.facts.launch_facts import names
from gonogo.hazards.rule import Certainty, Findings, Hazard, Launch, Run, Text

# Options of TrainingArguments and of the frameworks that have no meaning without a value.
_NEED_A_VALUE = names(
    """
    learning_rate num_train_epochs max_steps per_device_train_batch_size per_device_eval_batch_size
    gradient_accumulation_steps warmup_ratio warmup_steps weight_decay lr_scheduler_type logging_steps save_steps
    save_strategy eval_steps eval_strategy evaluation_strategy save_total_limit output_dir model_name_or_path seed
    max_grad_norm dataloader_num_workers model_max_length max_seq_length cutoff_len lora_rank lora_alpha lora_dropout
    ddp_timeout deepspeed_config data_path dataset
    """
)


class LaunchOptionWithoutValue(Hazard):
    """An option that needs a value has none.
    ## What happens
    "error: argument --output_dir: expected one argument" from every rank.
    ## Why
    The next word is an option again, or the command ends there: the value was deleted, or is a variable that is empty.
    ## Example
    ```sh
    torchrun --nproc_per_node 8 train.py --output_dir --bf16 true      # wrong
    torchrun --nproc_per_node 8 train.py --output_dir out --bf16 true  # right
    ```
    ## Cure
    Give the value, or take the option out.
    ## When it is safe
    Where a script of your own declares the option as a flag.
    ## Sources
    - https://docs.python.org/3/library/argparse.html#nargs: an option takes one argument unless declared otherwise
    - https://github.com/huggingface/transformers/blob/main/src/transformers/hf_argparser.py: options out of dataclasses
    """

    name = "launch-option-without-value"
    title = Text("An option that needs a value has none", "需要值的选项没有值")

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """The program's options that are known to need a value."""
        declared = [script for script in run.scripts if b"store_true" in script.source.data]
        for option in launch.options:
            if option.name not in _NEED_A_VALUE or option.values or option.attached:
                continue
            if any(option.name.encode("utf-8", "surrogateescape") in script.source.data for script in declared):
                continue
            yield self.finding(
                Text(
                    "--{name} has no value: argparse stops with “expected one argument”.",
                    "--{name} 没有值：argparse 会以 “expected one argument” 退出。",
                ).format(name=option.name),
                certainty=Certainty.LIKELY,
                cure=Text("Give --{name} a value, or take it out", "给 --{name} 一个值，或去掉它").format(
                    name=option.name
                ),
                spans=option.word.place.span(),
            )
