import ast
from functools import partial

from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.log.match import first_match
from gonogo.evidence.log.truncated_traceback import cut_in
from gonogo.hazards.config._optimizers import kind_of
from gonogo.hazards.facts.how_it_trains import fix_of
from gonogo.hazards.rule import Call, Certainty, DeepSpeedConfig, Findings, Hazard, Run, Script, Severity, Text

_BOTH = (
    "cannot specify an optimizer in the config file and in the code",
    "cannot specify a scheduler in the config file and in the code",
)
_PASSED = (
    "Passing `optimizers` is not allowed if Deepspeed",
    "Passing `optimizers` is not allowed if PyTorch FSDP or DeepSpeed",
    "Passing `optimizers` is not allowed if Fairscale, Deepspeed",
)
_TRAINERS = ("transformers.Trainer", "transformers.Seq2SeqTrainer", "trl.SFTTrainer", "trl.DPOTrainer")


class DsConfigAndCodeOptimizerConflict(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """accelerate.prepare with an optimizer beside the config's, or a Trainer that is given optimizers."""
        if run.config is None or b"DummyOptim" in script.source.data:
            return
        yield from self._prepared(script, run.config)
        for call in script.calls(*_TRAINERS):
            yield from self._passed_to_trainer(call, run)

    def in_log(self, log: FailureLog) -> Findings:
        """accelerate's refusal, or the Trainer's where an optimizer object is passed under DeepSpeed."""
        if evidence := first_match(log, *_BOTH):
            yield self.log_finding(evidence, _CAUSE, cure=_CURE)
        elif evidence := first_match(log, *_PASSED):
            deepspeed = log.setup.mentions("(?i)deepspeed") or log.setup.zero_stage is not None
            yield self.log_finding(
                evidence,
                _CAUSE_PASSED,
                cure=_CURE[1:],
                certainty=Certainty.LIKELY if deepspeed else Certainty.POSSIBLE,
                confirm=Text(
                    "The launch uses --deepspeed, and the code or an option such as use_galore builds an optimizer",
                    "启动命令使用 --deepspeed，且代码或 use_galore 之类的选项自建优化器",
                ),
            )
        elif (cut := cut_in(log, ("accelerate/accelerator", "_prepare_deepspeed"), within=1)) and cut.frame(
            "raise ValueError"
        ):
            yield self.log_finding(
                cut,
                _CAUSE,
                cure=_CURE,
                certainty=Certainty.POSSIBLE,
                confirm=Text(
                    "The line after it names an optimizer or a scheduler, not a batch size",
                    "其后一行提到的是 optimizer 或 scheduler，而不是 batch size",
                ),
            )

    def _prepared(self, script: Script, config: DeepSpeedConfig) -> Findings:
        given = {name: place for name in ("optimizer", "scheduler") if (place := config.key_place(name)) is not None}
        if not given:
            return
        for call in script.calls("accelerate.Accelerator.prepare"):
            for argument in call.node.args:
                name = kind_of(script, argument)
                if name not in given:
                    continue
                yield self.finding(
                    Text(
                        "accelerator.prepare gets {kind} `{argument}` of the code, and the DeepSpeed config has a "
                        'block "{name}" too: accelerate takes only one of them.',
                        'accelerator.prepare 得到代码中的 {kind} `{argument}`，而 DeepSpeed 配置中也有 "{name}" 段：'
                        "accelerate 只接受其中一个。",
                    ).format(kind=script.kind_of(argument) or name, argument=ast.unparse(argument)[:60], name=name),
                    cure=Text(
                        'Remove "{name}" from the DeepSpeed config, or use accelerate.utils.{dummy} in the code',
                        '从 DeepSpeed 配置中去掉 "{name}" 段，或在代码中使用 accelerate.utils.{dummy}',
                    ).format(name=name, dummy="DummyOptim" if name == "optimizer" else "DummyScheduler"),
                    spans=(given[name].span(), script.place(argument).span(Text("the code's own", "代码自己的"))),
                    fixes=fix_of(
                        Text('Remove "{name}" from the config', '从配置中删除 "{name}"').format(name=name),
                        partial(config.removing, name),
                        safe=False,
                    ),
                )

    def _passed_to_trainer(self, call: Call, run: Run) -> Findings:
        node = call.keyword_node("optimizers")
        if node is None or not run.deepspeed_on:
            return
        if not isinstance(node, ast.Tuple) or all(isinstance(one, ast.Constant) for one in node.elts):
            return
        version = run.environment.field("transformers")
        refused = run.environment.within("transformers", "<4.46")
        place = call.keyword_place("optimizers")
        spans = (
            place.span() if place else call.place.span(),
            run.config_field.span(Text("DeepSpeed is on", "启用了 DeepSpeed")),
        )
        if refused:
            yield self.finding(
                Text(
                    "The Trainer is given optimizers= and runs under DeepSpeed: transformers {version} (any before "
                    "4.46) refuses that.",
                    "Trainer 在 DeepSpeed 下收到 optimizers=：transformers {version}（4.46 之前的版本）会拒绝。",
                ).format(version=version.get("<4.46")),
                cure=Text(
                    "Name the optimizer in the DeepSpeed JSON, or override create_optimizer, or upgrade to "
                    "transformers>=4.46",
                    "在 DeepSpeed JSON 中指定优化器，或覆写 create_optimizer，或升级到 transformers>=4.46",
                ),
                spans=(*spans, version.span()),
            )
        elif run.config is not None and (block := run.config.key_place("optimizer")) is not None:
            yield self.finding(
                Text(
                    'The Trainer is given optimizers=, and the DeepSpeed config has a block "optimizer": the '
                    "config's is used, and the one that is passed is dropped silently.",
                    'Trainer 收到 optimizers=，而 DeepSpeed 配置中有 "optimizer" 段：实际使用配置中的，'
                    "传入的被悄悄丢弃。",
                ),
                severity=Severity.WARNING,
                certainty=Certainty.LIKELY,
                cure=Text(
                    'Remove the block "optimizer" from the DeepSpeed JSON, or the argument optimizers=',
                    '从 DeepSpeed JSON 中去掉 "optimizer" 段，或去掉参数 optimizers=',
                ),
                spans=(block.span(), *spans),
            )


_CAUSE = Text(
    "The DeepSpeed JSON has an optimizer or scheduler block, and the code passes its own: accelerate takes only "
    "one of them.",
    "DeepSpeed JSON 中有 optimizer 或 scheduler 段，代码又传入了自己的：accelerate 只接受其中一个。",
)
_CAUSE_PASSED = Text(
    "The code passes the Trainer an optimizer object of its own, which it does not take where DeepSpeed (or FSDP) "
    "shards the optimizer.",
    "代码把自建的优化器对象传给 Trainer；由 DeepSpeed（或 FSDP）切分优化器时，Trainer 不接受它。",
)
_CURE = (
    Text(
        "Remove the optimizer (and scheduler) block from the DeepSpeed JSON, or use accelerate.utils.DummyOptim / "
        "DummyScheduler in the code",
        "从 DeepSpeed JSON 中去掉 optimizer（和 scheduler）段，或在代码中使用 accelerate.utils.DummyOptim / "
        "DummyScheduler",
    ),
    Text(
        "With GaLore or another optimizer that the framework builds: turn it off, or train without DeepSpeed",
        "若使用 GaLore 等由框架自建的优化器：关闭它，或不使用 DeepSpeed",
    ),
)
