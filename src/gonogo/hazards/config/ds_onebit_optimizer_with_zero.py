from gonogo.hazards.facts.deepspeed_settings import ZERO, newer_than, optimizer_type, span_in, version_words
from gonogo.hazards.rule import DeepSpeedConfig, Findings, Hazard, Run, Text


class DsOnebitOptimizerWithZero(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """One of the three by name, with ZeRO on or with a DeepSpeed that has none of them."""
        name = optimizer_type(config) or ""
        if name.lower() not in ("onebitadam", "zerooneadam", "onebitlamb"):
            return
        stage = config.zero_stage
        gone = newer_than(run, ">=0.19.7")
        if not stage and not gone:
            return
        cause = (
            Text(
                "{deepspeed} has no optimizer {name} any more: it was removed in 0.19.7.",
                "{deepspeed} 已没有优化器 {name}：它在 0.19.7 中被移除。",
            ).format(deepspeed=version_words(run), name=name)
            if gone
            else Text(
                "{name} does not work with ZeRO, and ZeRO-{stage} is on: DeepSpeed refuses it.",
                "{name} 不能与 ZeRO 一起使用，而这里开启了 ZeRO-{stage}：DeepSpeed 会拒绝。",
            ).format(name=name, stage=stage)
        )
        yield self.finding(
            cause,
            cure=Text(
                'Use "AdamW"; parameters such as freeze_step and cuda_aware go with {name}',
                "改用 “AdamW”；freeze_step、cuda_aware 等参数随 {name} 一并去掉",
            ).format(name=name),
            spans=(span_in(config, "optimizer", "type"), span_in(config, ZERO, "stage")),
        )
