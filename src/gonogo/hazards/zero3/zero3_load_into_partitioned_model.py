import ast

from gonogo.evidence.log.failure_log import FailureLog, Found, LoggedError
from gonogo.hazards.facts.training_script import makers
from gonogo.hazards.facts.zero_files import gathered, is_engine, is_optional, stage_span, tests_the_stage, text_of
from gonogo.hazards.rule import Call, Certainty, Finding, Findings, Hazard, Run, Script, Text
from gonogo.hazards.zero3._loading import knows_zero3
from gonogo.hazards.zero3._partitioned import ZERO3_WORDS, zero3
from gonogo.hazards.zero3._shape_mismatches import MISMATCH_WORDS, shape_mismatches

_CURE = (
    Text(
        "Load through from_pretrained while ZeRO-3 is on, or engine.load_checkpoint to resume",
        "启用 ZeRO-3 时通过 from_pretrained 加载，恢复训练用 engine.load_checkpoint",
    ),
    Text(
        "Or load before ZeRO-3 partitions the model, or module by module inside "
        "deepspeed.zero.GatheredParameters(list(module.parameters(recurse=False)), modifier_rank=0)",
        "或在 ZeRO-3 切分模型之前加载，或在 deepspeed.zero.GatheredParameters(list(module.parameters(recurse=False)), "
        "modifier_rank=0) 中逐个模块加载",
    ),
)


class Zero3LoadIntoPartitionedModel(Hazard):
    """A state dict is loaded into a model whose parameters ZeRO-3 has partitioned.
    ## What happens
    `load_state_dict` raises "size mismatch for lm_head.weight: copying a param with shape torch.Size([32000, 4096])
    from checkpoint, the shape in current model is torch.Size([0])". The empty side is the *current model*.
    ## Why
    Under ZeRO-3 the model was built inside `zero.Init`, or is already wrapped: its parameters have shape [0] (in
    DeepSpeed of 2021: [1]). `torch.load` and `load_state_dict`, or a PEFT adapter loaded so, know nothing of that.
    ## Example
    ```python
    engine, *_ = deepspeed.initialize(model=model, config="ds_config.json")
    engine.module.load_state_dict(torch.load("model.pt"))    # wrong: its parameters have shape [0]

    model.load_state_dict(torch.load("model.pt"))            # right: before they are partitioned
    engine, *_ = deepspeed.initialize(model=model, config="ds_config.json")
    ```
    ## Cure
    Load through `from_pretrained(path)` while ZeRO-3 is on: it gathers, copies and partitions again. For a state dict
    of your own copy each part inside `with deepspeed.zero.GatheredParameters(list(module.parameters(recurse=False)),
    modifier_rank=0):`, or load into the whole model before ZeRO-3 is set up. Resume with `engine.load_checkpoint`.
    ## When it is safe
    ZeRO-2 and lower; `from_pretrained` of a recent transformers.
    ## Sources
    - https://github.com/deepspeedai/DeepSpeedExamples/issues/560: a checkpoint loaded into from_config's model
    - https://github.com/deepspeedai/DeepSpeed/issues/3125: a state dict copied under GatheredParameters
    - https://github.com/allenai/open-instruct/issues/583: torch.Size([0]) in the current model
    """

    name = "zero3-load-into-partitioned-model"
    title = Text(
        "A state dict is loaded into a model that ZeRO-3 has partitioned", "把 state dict 加载到 ZeRO-3 已切分的模型"
    )

    def in_script(self, script: Script, run: Run) -> Findings:
        """``load_state_dict`` of an engine's module, or of a model that was built under ``zero.Init``."""
        if run.zero_stage != 3 or b".load_state_dict(" not in script.source.data:
            return
        for call in script.calls("*.load_state_dict"):
            receiver = call.receiver
            if receiver is None or gathered(script, call.node) or tests_the_stage(script, call.node):
                continue
            if call.keyword("assign").truth:
                continue
            if not _is_partitioned(script, receiver):
                continue
            yield self.finding(
                Text(
                    "`{model}` is partitioned by ZeRO-3 here: each of its parameters has shape [0], and "
                    "load_state_dict raises a size mismatch for every whole tensor that it is given.",
                    "此处 `{model}` 已被 ZeRO-3 切分：每个参数的形状都是 [0]，load_state_dict 会对每个完整张量报 size "
                    "mismatch。",
                ).format(model=text_of(script, receiver)),
                certainty=Certainty.LIKELY if is_optional(script, call.node) else Certainty.CERTAIN,
                cure=_CURE,
                spans=(call.place.span(), stage_span(run)),
            )

    yields_to = ("zero3-aux-model-loaded-under-zero-init",)
    log_words = (*ZERO3_WORDS, *MISMATCH_WORDS)
    ends_at = (("torch/nn/modules/module.py", "Error(s) in loading state_dict"),)
    traces = ("the shape in current model is torch.Size([0])", "the shape in current model is torch.Size([1])")

    def in_log(self, log: FailureLog) -> Findings:
        """A mismatch whose empty side is the model; a shape of [1] only where several parameters have it."""
        mismatches = list(shape_mismatches(log))
        ones = [m for m in mismatches if m.current == "1" and m.saved not in ("0", "1")]
        found = [(m, Certainty.CERTAIN) for m in mismatches if m.current == "0" and m.saved != "0"][:1]
        if not found and len(ones) > 1:
            found = [(ones[0], Certainty.CERTAIN if zero3(log) else Certainty.LIKELY)]
        for mismatch, certainty in found:
            yield self._found(mismatch.evidence, mismatch.saved, mismatch.current, certainty)

    def _found(self, evidence: LoggedError | Found, saved: str, current: str, certainty: Certainty) -> Finding:
        return self.log_finding(
            evidence,
            Text(
                "The checkpoint's weights are whole ([{saved}]); the model they are loaded into is partitioned by "
                "ZeRO-3 and its parameters are empty ([{current}]).",
                "checkpoint 中的权重是完整的（[{saved}]）；要加载到的模型已被 ZeRO-3 切分，参数是空的（[{current}]）。",
            ).format(saved=saved, current=current),
            cure=_CURE,
            certainty=certainty,
        )


def _is_partitioned(script: Script, node: ast.expr) -> bool:
    """Whether a model's parameters are surely partitioned: an engine's, or what was made under ``zero.Init``."""
    inner = node.value if isinstance(node, ast.Attribute) and node.attr == "module" else node
    made = makers(script, node)
    return is_engine(script, inner) or (bool(made) and all(_made_partitioned(script, one) for one in made))


def _made_partitioned(script: Script, made: Call) -> bool:
    if made.method == "from_pretrained" and made.name.startswith("transformers."):
        return knows_zero3(script, made.node) is True
    return any(name.endswith("zero.Init") for name in script.with_contexts(made.node))
