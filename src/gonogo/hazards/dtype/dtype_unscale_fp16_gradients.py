import ast

from gonogo.evidence.log.match import first_match
from gonogo.evidence.log.truncated_traceback import find_truncated_error
from gonogo.hazards.facts.training_script import is_trainer, run_mentions, trained_pretrained_calls
from gonogo.hazards.rule import Certainty, FailureLog, Findings, Hazard, Run, Script, translated

_UNSCALE_MESSAGES = ("Attempting to unscale FP16 gradients", "unscale FP16 gradients", "unscale FP16 Gradients")

# Adapters are trained in fp32 in an fp16 model, and a script may cast parameters itself.
_CASTING_MARKERS = (b"peft", b"swift", b".float()", b"float32", b"fp32", b"requires_grad", b"deepspeed")


class DtypeUnscaleFp16Gradients(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A model loaded in fp16 and fully fine-tuned with fp16 mixed precision, without DeepSpeed's fp32 weights."""
        if b"float16" not in script.source.data or run.uses_deepspeed:
            return
        fp16 = run.arguments.get("fp16")
        if fp16.truth is not True or run_mentions(run, script, *_CASTING_MARKERS):
            return
        for trainer, load in trained_pretrained_calls(script):
            keyword = "dtype" if load.passed_keyword("dtype") is not None else "torch_dtype"
            node = load.keyword_node(keyword)
            if node is None or not is_trainer(trainer) or not _is_fp16_dtype(script, node):
                continue
            edit = script.setting_keyword(load, keyword, "torch.float32")
            place = load.keyword_place(keyword)
            yield self.finding(
                self.texts["cause_in_script"].format(keyword=keyword, given=script.place(node).text),
                certainty=Certainty.CERTAIN if run.uses_deepspeed is False else Certainty.LIKELY,
                spans=(
                    place.span() if place is not None else load.place.span(),
                    fp16.span(translated("fp16 mixed precision")),
                    trainer.script.place(trainer.node.func).span(translated("trained here")),
                ),
                fixes=self.fix(translated("Load in fp32, which doubles the memory for the weights"), edit, safe=False)
                if edit is not None and script.imports("torch")
                else None,
            )

    def in_log(self, log: FailureLog) -> Findings:
        """The GradScaler's error."""
        evidence = first_match(log, *_UNSCALE_MESSAGES)
        certainty = Certainty.CERTAIN if evidence else Certainty.LIKELY
        if evidence is None:
            evidence = find_truncated_error(log, ("amp/grad_scaler", "_unscale_grads_"), max_frames=1)
        if evidence:
            yield self.log_finding(evidence, certainty=certainty)


def _is_fp16_dtype(script: Script, node: ast.expr) -> bool:
    return script.qualified(node) in ("torch.float16", "torch.half") or script.field(node).value == "float16"
