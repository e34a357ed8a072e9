from gonogo.hazards.facts.how_it_trains import fix_of
from gonogo.hazards.rule import Certainty, Environment, Findings, Hazard, Run, Severity, Text


class AccelerateZero3InitOff(Hazard):
    """ZeRO-3 with zero3_init_flag false: each rank loads the whole model into host memory.
    ## What happens
    Loading a large model takes its size in host memory once for every GPU of the node; with 8 GPUs a 70B model
    asks for more than a terabyte, and the kernel kills a process (exit code -9) before training starts.
    ## Why
    `zero3_init_flag: true` makes accelerate tell transformers about ZeRO-3, so that `from_pretrained` builds the
    model under `deepspeed.zero.Init`, partitioned from the start. With false, accelerate before 1.0 tells nothing,
    and each process holds all the weights until `prepare` partitions them. From 1.0 on it tells transformers in
    any case.
    ## Example
    ```yaml
    deepspeed_config:
      zero_stage: 3
      zero3_init_flag: false   # wrong: each process loads the whole model
      # right: zero3_init_flag: true
    ```
    ## Cure
    Set `zero3_init_flag: true`.
    ## When it is safe
    Where the node's memory holds the model once for each of its processes; with accelerate 1.0 or later.
    ## Sources
    - https://huggingface.co/docs/accelerate/usage_guides/deepspeed: what zero3_init_flag does
    - https://github.com/huggingface/accelerate/pull/405: where from_pretrained was joined to ZeRO-3
    """

    name = "accelerate-zero3-init-off"
    title = Text(
        "ZeRO-3 with zero3_init_flag false: every process loads the whole model",
        "ZeRO-3 而 zero3_init_flag 为 false：每个进程都加载整个模型",
    )

    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """The flag in the YAML, with stage 3 and an accelerate that heeds it."""
        yaml = run.accelerate
        if yaml is None or not yaml.deepspeed_on:
            return
        flag = yaml.get("deepspeed_config", "zero3_init_flag")
        if flag.truth is not False or run.zero_stage != 3:
            return
        heeds = environment.within("accelerate", "<1.0")
        if heeds is False or (run.launch is not None and "deepspeed" in run.launch.options):
            return  # the Trainer's own --deepspeed tells transformers
        version = environment.field("accelerate")
        stage = yaml.get("deepspeed_config", "zero_stage")
        yield self.finding(
            Text(
                "zero3_init_flag is false under ZeRO-3: with accelerate {version} from_pretrained does not partition, "
                "and each of the node's processes holds the whole model in host memory.",
                "ZeRO-3 下 zero3_init_flag 为 false：使用 accelerate {version} 时 from_pretrained 不切分参数，节点上每"
                "个进程都在内存中持有整个模型。",
            ).format(version=version.get("< 1.0")),
            severity=Severity.WARNING,
            certainty=Certainty.LIKELY if heeds else Certainty.POSSIBLE,
            cure=Text("Set zero3_init_flag: true", "设 zero3_init_flag: true"),
            spans=(flag.span(), stage.span(Text("ZeRO-3 is on", "启用了 ZeRO-3")), version.span()),
            fixes=fix_of(
                Text("Set it to true", "设为 true"),
                lambda: yaml.replacing("deepspeed_config", "zero3_init_flag", value=True),
                safe=False,
            ),
            confirm=Text(
                "accelerate is older than 1.0, and the model is loaded by from_pretrained",
                "accelerate 早于 1.0，且模型由 from_pretrained 加载",
            ),
        )
