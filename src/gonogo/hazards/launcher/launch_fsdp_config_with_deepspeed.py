from gonogo.hazards.rule import Certainty, Findings, Hazard, Launch, Run, Text


class LaunchFsdpConfigWithDeepspeed(Hazard):
    """accelerate's config turns FSDP on, and the program is given --deepspeed.
    ## What happens
    Both would shard the model: "Could not find the transformer layer class to wrap", and other errors about FSDP in a
    run that was meant for DeepSpeed.
    ## Why
    accelerate launch sets ACCELERATE_USE_FSDP for distributed_type: FSDP, and --deepspeed makes TrainingArguments set
    ACCELERATE_USE_DEEPSPEED as well. One program cannot do both.
    ## Example
    ```sh
    # wrong: fsdp.yaml says distributed_type: FSDP
    accelerate launch --config_file fsdp.yaml train.py --deepspeed ds_config.json
    # right
    accelerate launch --config_file fsdp.yaml train.py
    ```
    ## Cure
    A config with `distributed_type: DEEPSPEED` (or MULTI_GPU, where --deepspeed names the config), or no --deepspeed.
    ## When it is safe
    Never.
    ## Sources
    - https://github.com/huggingface/accelerate/blob/main/src/accelerate/commands/launch.py: one of --use_deepspeed and
      --use_fsdp at a time
    - https://github.com/huggingface/transformers/blob/main/src/transformers/training_args.py: --deepspeed sets
      ACCELERATE_USE_DEEPSPEED
    """

    name = "launch-fsdp-config-with-deepspeed"
    title = Text("accelerate is told FSDP, and the program DeepSpeed", "accelerate 配置为 FSDP，程序却使用 DeepSpeed")

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """distributed_type: FSDP, or --use_fsdp, beside the program's --deepspeed."""
        if launch.launcher != "accelerate" or "deepspeed" not in launch.options:
            return
        options = launch.launcher_options
        field = launch.options.get("deepspeed")
        if field.absent or field.truth is False:
            return
        own = options.get("use_fsdp")
        if own.absent and run.accelerate is not None and "use_deepspeed" not in options and "multi_gpu" not in options:
            kind = run.accelerate.get("distributed_type")
            own = kind if kind.known and str(kind.value).upper() == "FSDP" else own
        if not own.known:
            return
        place = launch.options.place_of("deepspeed")
        yield self.finding(
            Text(
                "accelerate launch turns FSDP on ({where}), and the program gets --deepspeed {config}.",
                "accelerate launch 启用了 FSDP（{where}），而程序得到 --deepspeed {config}。",
            ).format(
                where="--use_fsdp" if "use_fsdp" in options else "distributed_type: FSDP",
                config=field.value if isinstance(field.value, str) else "",
            ),
            certainty=Certainty.LIKELY,
            cure=Text(
                "Use an accelerate config with distributed_type: DEEPSPEED, or take --deepspeed out",
                "使用 distributed_type: DEEPSPEED 的 accelerate 配置，或去掉 --deepspeed",
            ),
            spans=(place.span() if place else launch.place.span(), own.span()),
        )
