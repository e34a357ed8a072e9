import ast

from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.log.match import first_match
from gonogo.evidence.log.truncated_traceback import cut_in
from gonogo.hazards.facts.training_script import is_trainer, mentions, trained_loads
from gonogo.hazards.rule import Certainty, Findings, Hazard, Run, Script, Text

_WORDS = ("Attempting to unscale FP16 gradients", "unscale FP16 gradients", "unscale FP16 Gradients")

# Adapters are trained in fp32 beside a model in fp16, and what a script casts itself may be.
_CAST = (b"peft", b"swift", b".float()", b"float32", b"fp32", b"requires_grad", b"deepspeed")

_CURES = (
    Text(
        "Cast the trainable parameters to fp32 (p.data = p.data.float() where p.requires_grad; diffusers: "
        "cast_training_params)",
        "把可训练参数转换为 fp32（对 p.requires_grad 的参数执行 p.data = p.data.float()；diffusers："
        "cast_training_params）",
    ),
    Text(
        "Or load without torch_dtype=torch.float16, or train with bf16=True",
        "或不用 torch_dtype=torch.float16 加载，或用 bf16=True 训练",
    ),
)


class DtypeUnscaleFp16Gradients(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A model loaded in fp16 and trained whole under fp16 mixed precision, without DeepSpeed's fp32 copies."""
        if b"float16" not in script.source.data or run.deepspeed_on:
            return
        fp16 = run.arguments.get("fp16")
        if fp16.truth is not True or mentions(run, script, *_CAST):
            return
        for trainer, load in trained_loads(script):
            keyword = "dtype" if load.passed("dtype") is not None else "torch_dtype"
            node = load.keyword_node(keyword)
            if node is None or not is_trainer(trainer) or not _is_half(script, node):
                continue
            edit = script.setting_keyword(load, keyword, "torch.float32")
            place = load.keyword_place(keyword)
            yield self.finding(
                Text(
                    "The model is loaded in fp16 ({keyword}={given}) and all of it is trained with fp16=True: its "
                    "gradients are fp16, which the gradient scaler refuses.",
                    "模型以 fp16 加载（{keyword}={given}）并在 fp16=True 下全部训练：梯度是 fp16，梯度缩放器拒绝处理。",
                ).format(keyword=keyword, given=script.place(node).text),
                certainty=Certainty.CERTAIN if run.deepspeed_on is False else Certainty.LIKELY,
                cure=_CURES,
                spans=(
                    place.span() if place is not None else load.place.span(),
                    fp16.span(Text("fp16 mixed precision", "fp16 混合精度")),
                    trainer.script.place(trainer.node.func).span(Text("trained here", "在此处训练")),
                ),
                fixes=self.fix(
                    Text("Load in fp32: twice the memory for the weights", "以 fp32 加载：权重占用的显存加倍"),
                    edit,
                    safe=False,
                )
                if edit is not None and script.imports("torch")
                else None,
            )

    def in_log(self, log: FailureLog) -> Findings:
        """The gradient scaler's refusal."""
        evidence = first_match(log, *_WORDS)
        certainty = Certainty.CERTAIN if evidence else Certainty.LIKELY
        if evidence is None:
            evidence = cut_in(log, ("amp/grad_scaler", "_unscale_grads_"), within=1)
        if evidence:
            yield self.log_finding(
                evidence,
                Text(
                    "The gradient scaler met fp16 gradients: the parameters that are trained were loaded or cast to "
                    "fp16, and mixed precision needs them in fp32.",
                    "梯度缩放器遇到 fp16 梯度：要训练的参数以 fp16 加载或被转换为 fp16，而混合精度要求它们是 fp32。",
                ),
                certainty=certainty,
                cure=_CURES,
            )


def _is_half(script: Script, node: ast.expr) -> bool:
    return script.qualified(node) in ("torch.float16", "torch.half") or script.field(node).value == "float16"
