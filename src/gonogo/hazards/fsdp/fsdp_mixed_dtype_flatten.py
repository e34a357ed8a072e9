from gonogo.evidence.log.cut import cut_in
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.log.match import first_match, matched_text
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
    """FSDP is to flatten parameters of different dtypes, or trainable and frozen ones, into one.
    ## What happens
    "ValueError: Must flatten tensors with uniform dtype but got torch.bfloat16 and torch.float32" while the model is
    wrapped; or "Must flatten tensors with uniform `requires_grad` when `use_orig_params=False`"; under FSDP2 "FSDP
    expects uniform original parameter dtype".
    ## Why
    FSDP joins all parameters of a wrapped module into one flat tensor, which has one dtype. LoRA adapters in fp32 on a
    bf16 model, norms or routers kept in fp32, a new head, or 4-bit weights stored as uint8 break that. Without
    `use_orig_params`, frozen and trainable parameters cannot share one either.
    ## Example
    ```python
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(path, torch_dtype=torch.bfloat16), lora)
    FSDP(model)    # wrong: peft made the adapters in fp32
    FSDP(model.to(torch.bfloat16))    # right
    ```
    ## Cure
    Cast the model to one dtype before wrapping (`model.to(torch.bfloat16)`, adapters too:
    `autocast_adapter_dtype=False`
    in PEFT). QLoRA: `bnb_4bit_quant_storage` equal to `torch_dtype`. For `requires_grad`: `fsdp_use_orig_params: true`,
    or peft's `fsdp_auto_wrap_policy(model)`, which wraps the adapters apart.
    ## When it is safe
    Where each wrapped module holds one dtype.
    ## Sources
    - https://github.com/axolotl-ai-cloud/axolotl/issues/1494: QLoRA, fp32 and bf16
    - https://github.com/eric-mitchell/direct-preference-optimization/issues/90: LoRA adapters in fp32
    - https://github.com/huggingface/trl/issues/1723: DPO with bf16 and fp32
    """

    name = "fsdp-mixed-dtype-flatten"
    title = Text(
        "FSDP cannot flatten parameters of different dtypes (or requires_grad) into one",
        "FSDP 无法把不同 dtype（或 requires_grad）的参数展平到一起",
    )
    log_words = ("Must flatten tensors", "requires uniform", "FSDP expects uniform", _INTEGER)
    ends_at = (
        ("_flat_param.py", "_validate_tensors_to_flatten"),
        ("/flat_param.py", "_validate_tensors_to_flatten"),
        ("fsdp/_fsdp_param_group.py", "_init_mp_dtypes"),
        ("_flat_param.py", "_init_flat_param_and_metadata"),
    )
    traces = ("FlatParamHandle(",)
    yields_to = ("fsdp-4bit-quant-storage", "fsdp-8bit-weights")

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
