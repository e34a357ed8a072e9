from gonogo.hazards.facts.how_it_trains import fix_of, with_trainer
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Environment, Findings, Hazard, Run, Text


class DsFp16AndBf16Enabled(Hazard):
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
