import ast

from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.hazards.facts.zero_files import in_module, stage_span, text_of
from gonogo.hazards.rule import Certainty, Finding, Findings, Hazard, Pattern, Run, Script, Text
from gonogo.hazards.zero3._partitioned import cut_at, first_match

_LOST = Pattern(
    r"'(\w{0,40}(?:Parameter|Params4bit|Int8Params|Tensor|DTensor))' object has no attribute '(ds_\w+"
    r"|all_gather_coalesced|partition|all_gather)'"
)
_MODULE_LOST = Pattern(
    r"'(\w{1,60})' object has no attribute '(ds_grads_remaining|ds_id|applied_pre_backward_ref_cnt)'"
)
# Reading one of DeepSpeed's attributes can fail in one way only; an assertion of it in two.
_READS = Pattern(r"^(?:if|for|return|while|elif)\b.*\.(ds_(?:status|id|persist|active_sub_modules|secondary\w+))\b")
_QUANTIZED_TYPES = ("Params4bit", "Int8Params")


class Zero3ParamRecreatedLosesDsAttrs(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A new ``nn.Parameter`` in a forward, or put into the engine's model."""
        if run.zero_stage != 3 or b"Parameter(" not in script.source.data:
            return
        for call in script.calls("torch.nn.Parameter", "torch.nn.parameter.Parameter"):
            statement = script.statement(call.node)
            if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Attribute):
                continue
            function = script.enclosing_function(call.node)
            built = next(
                (
                    one
                    for one in script.calls("deepspeed.initialize")
                    if script.enclosing_function(one.node) is function and one.line < call.line
                ),
                None,
            )
            in_forward = function is not None and function.name == "forward" and in_module(script, call.node)
            if not in_forward and built is None:
                continue
            target = statement.targets[0]
            yield self.finding(
                Text(
                    "`{target}` becomes a new nn.Parameter {when}: it has none of ZeRO-3's marks (ds_id, ds_status, "
                    "…), and the next gather fails with “'Parameter' object has no attribute 'ds_…'”.",
                    "`{target}` {when}变成了新的 nn.Parameter：它没有 ZeRO-3 的标记（ds_id、ds_status……），下一次聚合会"
                    "报 “'Parameter' object has no attribute 'ds_…'”。",
                ).format(
                    target=text_of(script, target),
                    when=Text("in a forward", "在 forward 中")
                    if in_forward
                    else Text("after deepspeed.initialize", "在 deepspeed.initialize 之后"),
                ),
                certainty=Certainty.LIKELY,
                cure=Text(
                    "Assign the data in place (weight.data.copy_(...) under GatheredParameters with modifier_rank), or "
                    "replace layers before deepspeed.initialize",
                    "原地赋值（在带 modifier_rank 的 GatheredParameters 中 weight.data.copy_(...)），或在 "
                    "deepspeed.initialize 之前替换层",
                ),
                spans=(
                    script.place(statement).span(),
                    built.place.span(Text("the engine is built here", "此处建立引擎")) if built else None,
                    stage_span(run),
                ),
                confirm=Text("This code runs in the training", "训练中会执行这段代码"),
            )

    def in_log(self, log: FailureLog) -> Findings:
        """A parameter (or a module) without the attributes that DeepSpeed gave it."""
        on_module = False
        evidence = first_match(log, _LOST, "AttributeError")
        if evidence is None:
            evidence, on_module = first_match(log, _MODULE_LOST, "AttributeError"), True
        if evidence is None:
            evidence, on_module = cut_at(log, "deepspeed/", code=_READS), False
        if evidence is None:
            return
        if isinstance(evidence, LoggedError) and not evidence.type and evidence.innermost:
            read = _READS.search(evidence.innermost.code)
            yield self._found(evidence, "Parameter", read.group(1) if read else "ds_id", Certainty.LIKELY)
            return
        text = evidence.message if isinstance(evidence, LoggedError) else evidence.text
        found = (_MODULE_LOST if on_module else _LOST).search(text)
        holder, attribute = (found.group(1), found.group(2)) if found else ("Parameter", "ds_id")
        if attribute == "ds_numel":
            certainty = Certainty.POSSIBLE  # as much a parameter that zero.Init never saw
        elif holder in _QUANTIZED_TYPES:
            certainty = Certainty.POSSIBLE
        else:
            certainty = Certainty.CERTAIN if not on_module and attribute.startswith("ds_") else Certainty.LIKELY
        yield self._found(evidence, holder, attribute, certainty)

    def _found(self, evidence: LoggedError | LineMatch, holder: str, attribute: str, certainty: Certainty) -> Finding:
        return self.log_finding(
            evidence,
            Text(
                "A {holder} lacks {attribute}, which DeepSpeed sets on every parameter and module it knows: it was "
                "made, copied or replaced after ZeRO-3 took the model over.",
                "某个 {holder} 没有 {attribute}，而 DeepSpeed 会在它所知的每个参数与模块上设置该属性：它是在 ZeRO-3 接"
                "管模型之后新建、复制或替换的。",
            ).format(holder=holder, attribute=attribute),
            cure=(
                Text(
                    "Assign the data in place (weight.data.copy_(...) under GatheredParameters) instead of a new "
                    "nn.Parameter; Baichuan2: newer modelling file, or no evaluation",
                    "原地赋值（在 GatheredParameters 中 weight.data.copy_(...)），不要新建 nn.Parameter；Baichuan2：使"
                    "用较新的模型文件，或不做评估",
                ),
                Text(
                    "Replace, copy or resize layers before deepspeed.initialize; with PEFT's modules_to_save try "
                    "DeepSpeed 0.16.4",
                    "在 deepspeed.initialize 之前替换、复制或调整层；使用 PEFT 的 modules_to_save 时可尝试 DeepSpeed "
                    "0.16.4",
                ),
            ),
            certainty=certainty,
            confirm=Text(
                "The model's code assigns nn.Parameter(...) in forward, or layers were replaced after initialization",
                "模型代码在 forward 中赋值 nn.Parameter(...)，或初始化之后替换了层",
            ),
        )
