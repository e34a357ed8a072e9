from gonogo.hazards.facts.how_it_trains import fix_of, with_trainer
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Environment, Findings, Hazard, Pattern, Refusal, Run, Text


class DsFp16AndBf16Enabled(Hazard):
    """fp16 and bf16 are both switched on.
    ## What happens
    "AssertionError: bfloat16 and fp16 modes cannot be simultaneously enabled" from DeepSpeed, or "ValueError: At most
    one of fp16 and bf16 can be True, but not both" from TrainingArguments.
    ## Why
    A run has one 16-bit type. Often a config for fp16 is taken over and a bf16 block is added to it, or a script says
    one and the command line the other.
    ## Example
    ```json
    "fp16": {"enabled": true}, "bf16": {"enabled": true}    // wrong
    "fp16": {"enabled": false}, "bf16": {"enabled": true}   // right on Ampere and newer
    ```
    ## Cure
    Keep bf16 on Ampere and newer cards, fp16 on older ones, and switch the other off. Under the Trainer both
    blocks may stay with "enabled": "auto".
    ## When it is safe
    Where one of the two is false or "auto".
    ## Sources
    - https://github.com/Snowflake-AI-Research/Arctic-Platform/pull/78: DeepSpeed's assertion, met and settled
    - https://www.deepspeed.ai/docs/config-json/: bf16 can't be combined with fp16
    """

    name = "ds-fp16-and-bf16-enabled"
    raises = True
    title = Text("fp16 and bf16 are both enabled", "fp16 与 bf16 同时启用")
    refusal = Refusal(
        Pattern(
            r"(?:bfloat16 and fp16|fp16 and bf16|bf16 and fp16) modes cannot be simultaneously enabled"
            r"|[Aa]t most one of fp16 and bf16 can be True"
        )
    )

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Both blocks say ``enabled: true``."""
        fp16, bf16 = config.raw("fp16", "enabled"), config.raw("bf16", "enabled")
        if fp16.truth is not True or bf16.truth is not True:
            return
        trainer = with_trainer(run)
        wanted = {name: run.arguments.get(name).truth is True for name in ("fp16", "bf16")} if trainer else {}
        other = next((name for name in wanted if not wanted[name] and wanted[_OTHER[name]]), None)
        yield self.finding(
            Text(
                "The DeepSpeed config enables fp16 and bf16; DeepSpeed asserts that only one of them is on.",
                "DeepSpeed 配置同时启用了 fp16 与 bf16；DeepSpeed 断言只能启用其中一个。",
            ),
            cure=(
                Text(
                    "Set {other}.enabled to false: the arguments ask for {asked}",
                    "把 {other}.enabled 设为 false：参数要求的是 {asked}",
                ).format(other=other, asked=_OTHER[other]),
            )
            if other
            else (_CURE, Text('Under the Trainer: "enabled": "auto" in both', 'Trainer 下两处都写 "enabled": "auto"')),
            spans=(fp16.span(), bf16.span()),
            fixes=fix_of(
                Text("Switch {other} off: the arguments ask for the other", "关闭 {other}：参数要求的是另一个").format(
                    other=other
                ),
                lambda: config.replacing(other or "", "enabled", value=False),
            )
            if other
            else (),
        )

    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """Both TrainingArguments are true."""
        if not with_trainer(run):
            return
        for first, second in (("fp16", "bf16"), ("fp16_full_eval", "bf16_full_eval")):
            fields = [run.arguments.get(name) for name in (first, second)]
            if not all(field.truth is True for field in fields):
                continue
            sources = {run.arguments.source_of(name) for name in (first, second)}
            yield self.finding(
                Text(
                    "TrainingArguments get {first} and {second}, and take only one of them.",
                    "TrainingArguments 同时得到 {first} 与 {second}，而它只接受其中一个。",
                ).format(first=first, second=second),
                certainty=Certainty.CERTAIN if len(sources) == 1 else Certainty.LIKELY,
                cure=_CURE,
                spans=tuple(field.span() for field in fields),
            )


_OTHER = {"fp16": "bf16", "bf16": "fp16"}
_CURE = Text(
    "Keep bf16 on Ampere and newer GPUs, fp16 on older ones; switch the other off",
    "Ampere 及更新的 GPU 保留 bf16，更老的保留 fp16，关闭另一个",
)
