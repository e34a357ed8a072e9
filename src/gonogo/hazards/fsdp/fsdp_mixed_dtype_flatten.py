from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.log.match import first_match, matched_text
from gonogo.evidence.log.truncated_traceback import cut_in
from gonogo.hazards.rule import Certainty, Findings, Hazard, Pattern, Text

_DTYPE = (
    "Must flatten tensors with uniform dtype",
    "Must flatten tensors with the same dtype",
    "`FlatParameter` requires uniform dtype",
    "FlatParameter requires uniform dtype",
    "FSDP expects uniform original parameter dtype",
)
_REQUIRES_GRAD = (
    "Must flatten tensors with uniform `requires_grad`",
    "Must flatten tensors with uniform requires_grad",
    "`FlatParameter` requires uniform `requires_grad`",
    "FlatParameter requires uniform requires_grad",
)
_INTEGER = "Cannot flatten integer dtype tensors"
_TWO = Pattern(r"but got (?:both )?(\{[^}]{1,120}\}|torch\.\w{1,20}) ?(?:and (torch\.\w{1,20}))?")


class FsdpMixedDtypeFlatten(Hazard):
    log_words = ("Must flatten tensors", "requires uniform", "FSDP expects uniform", _INTEGER)

    def in_log(self, log: FailureLog) -> Findings:
        """FSDP's check of what it is to flatten, in the words of its versions."""
        cut = None if log.errors else cut_in(log, ("flat_param.py", "_validate_tensors_to_flatten"), within=1)
        if evidence := first_match(log, *_DTYPE) or cut:
            two = _TWO.search(matched_text(log, evidence))
            dtypes = " / ".join(part for part in two.groups() if part) if two else ""
            yield self.log_finding(
                evidence,
                Text(
                    "One module that FSDP wraps holds parameters of different dtypes{dtypes}.",
                    "FSDP 包装的某个模块含有不同 dtype 的参数{dtypes}。",
                ).format(dtypes=Text(f" ({dtypes})", f"（{dtypes}）") if dtypes else ""),
                cure=_CURE_DTYPE,
                certainty=Certainty.LIKELY if evidence is cut else Certainty.CERTAIN,
            )
        elif evidence := first_match(log, *_REQUIRES_GRAD):
            yield self.log_finding(
                evidence,
                Text(
                    "One module that FSDP wraps holds frozen and trainable parameters, which it flattens together only "
                    "with use_orig_params.",
                    "FSDP 包装的某个模块同时含有冻结和可训练的参数，只有 use_orig_params 时才能展平到一起。",
                ),
                cure=Text(
                    "Set fsdp_use_orig_params: true, or wrap adapters apart with peft's fsdp_auto_wrap_policy(model)",
                    "设置 fsdp_use_orig_params: true，或用 peft 的 fsdp_auto_wrap_policy(model) 单独包装适配器",
                ),
            )
        elif evidence := first_match(log, _INTEGER):
            yield self.log_finding(
                evidence,
                Text(
                    "The quantized weights are stored as integers, which FSDP cannot flatten with the others.",
                    "量化权重以整数存储，FSDP 无法把它们与其他参数展平到一起。",
                ),
                cure=_CURE_DTYPE[1:],
                certainty=Certainty.POSSIBLE,
            )


_CURE_DTYPE = (
    Text(
        "Cast everything to one dtype before FSDP wraps the model: model.to(torch.bfloat16), LoRA adapters too "
        "(autocast_adapter_dtype=False)",
        "在 FSDP 包装之前统一 dtype：model.to(torch.bfloat16)，LoRA 适配器也要转换（autocast_adapter_dtype=False）",
    ),
    Text(
        "With 4-bit weights: set bnb_4bit_quant_storage to the same dtype as torch_dtype",
        "使用 4-bit 权重时：把 bnb_4bit_quant_storage 设为与 torch_dtype 相同的 dtype",
    ),
)
