import ast

from gonogo.evidence.log.failure_log import FailureLog
from gonogo.hazards.facts.zero_files import TRAINERS, in_module, name_of, stage_span, tests_the_stage
from gonogo.hazards.rule import Certainty, Findings, Hazard, Run, Script, Text
from gonogo.hazards.zero3._empty_uses import Use, empty_uses
from gonogo.hazards.zero3._loading import handed_to, knows_zero3, model_loads, variable_of

_CURE = (
    Text(
        "Hand that model to DeepSpeed too: accelerator.prepare(model), or deepspeed.initialize(model=..., "
        "config=config_without_optimizer)",
        "把该模型也交给 DeepSpeed：accelerator.prepare(model) 或 deepspeed.initialize(model=..., config=不含优化器的配"
        "置)",
    ),
    Text(
        "Or load it whole, before TrainingArguments / HfDeepSpeedConfig exist, or under accelerate's "
        "zero3_init_context_manager(enable=False)",
        "或完整加载它：在 TrainingArguments / HfDeepSpeedConfig 创建之前，或在 accelerate 的 "
        "zero3_init_context_manager(enable=False) 中",
    ),
)
_WRAP = (
    *(
        "deepspeed.initialize",
        "*.prepare",
        "*.prepare_model",
        "*.prepare_deepspeed",
        "*._prepare_deepspeed",
        *TRAINERS,
        "*.init_inference",
    ),
    *("*.get_peft_model", "*.prepare_model_for_kbit_training", "super.__init__", "*.__init__"),
)


class Zero3PartitionedWeightUsedOutsideEngine(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A second model, loaded while ZeRO-3 is known, that is called without an engine of its own."""
        if run.zero_stage != 3:
            return
        for call in model_loads(script):
            name = variable_of(script, call.node)
            if name is None or in_module(script, call.node) or call.keyword("quantization_config").known:
                continue
            if any("zero3_init_context_manager" in one for one in script.with_contexts(call.node)):
                continue
            of_trainer = script.enclosing_class(call.node)
            known = knows_zero3(script, call.node) or (of_trainer is not None and of_trainer.is_subclass("*Trainer"))
            if not known or tests_the_stage(script, call.node) or handed_to(script, name, *_WRAP):
                continue
            use = _find_model_call(script, name, call.line)
            if use is None:
                continue
            yield self.finding(
                Text(
                    "`{name}` is loaded while ZeRO-3 is on, so its weights are partitioned, and no engine is built for "
                    "it: where it is called nothing gathers them, and its embedding says “'weight' must be 2-D”.",
                    "`{name}` 在 ZeRO-3 生效时加载，权重已被切分，却没有为它建立引擎：调用它时没有人聚合权重，其嵌入层"
                    "会报 “'weight' must be 2-D”。",
                ).format(name=name),
                certainty=Certainty.LIKELY,
                cure=_CURE,
                spans=(
                    call.place.span(Text("loaded under zero.Init", "在 zero.Init 下加载")),
                    script.place(use).span(Text("called here", "此处调用")),
                    stage_span(run),
                ),
                confirm=Text("No code elsewhere passes it to DeepSpeed", "其他代码没有把它交给 DeepSpeed"),
            )

    def in_log(self, log: FailureLog) -> Findings:
        """An empty weight in a model that is not the trained one, or nothing that tells which it was."""
        for use in empty_uses(log):
            certainty = use.causes.get(Use.OUTSIDE_ENGINE)
            if certainty is None:
                continue
            yield self.log_finding(
                use.evidence,
                Text(
                    "A model was built under zero.Init, so its parameters are empty, and is called without a DeepSpeed "
                    "engine that would gather them: a teacher, reference or reward model, an encoder, or the bare "
                    "model.",
                    "某个模型在 zero.Init 下构建，参数是空的，却在没有 DeepSpeed 引擎为其聚合参数的情况下被调用：教师、"
                    "参考或奖励模型、编码器，或未包装的模型。",
                ),
                cure=_CURE,
                certainty=certainty,
                confirm=Text(
                    "The frames above the error call a model other than the trained one, or the run was started with a "
                    "distributed launcher",
                    "报错之上的调用帧调用的不是被训练的模型，或者训练是用分布式启动器启动的",
                ),
            )


def _find_model_call(script: Script, name: str, after: int) -> ast.Call | None:
    """Where a model is run: ``name(…)`` or ``name.generate(…)``."""
    for node in script.nodes(ast.Call):
        func = node.func
        if isinstance(func, ast.Attribute) and func.attr in ("generate", "forward"):
            func = func.value
        if isinstance(func, (ast.Name, ast.Attribute)) and name_of(func) == name and node.lineno > after:
            return node
    return None
