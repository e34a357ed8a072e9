from gonogo.hazards.rule import Certainty, Findings, Pattern, Run, Script, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class Fsdp8bitWeights(LoggedHazard):
    """bitsandbytes' 8-bit (int8) weights under FSDP.
    ## What happens
    `ValueError: Must flatten tensors with uniform dtype but got torch.float16 and torch.int8` while the model is
    wrapped; under FSDP2 `Only Tensors of floating point and complex dtype can require gradients`.
    ## Why
    `Int8Params` are int8 tensors with states of their own (`SCB`). FSDP joins or slices parameters of one floating
    dtype. bitsandbytes supports FSDP for 4-bit weights with `bnb_4bit_quant_storage` alone.
    ## Example
    ```python
    # wrong under FSDP
    BitsAndBytesConfig(load_in_8bit=True)
    # right
    BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_storage=torch.bfloat16)
    ```
    ## Cure
    Load in 4 bits with bnb_4bit_quant_storage, or in 16 bits. Or train with DDP: each GPU then holds the whole
    8-bit model.
    ## When it is safe
    Under DDP, where every GPU holds all weights.
    ## Sources
    - https://github.com/bitsandbytes-foundation/bitsandbytes/issues/1709: float16 and int8
    - https://huggingface.co/docs/bitsandbytes/main/en/fsdp_qlora: what bitsandbytes supports under FSDP
    - https://github.com/huggingface/accelerate/pull/4219: FSDP2 beside parameters that are none of its own
    """

    name = "fsdp-8bit-weights"
    title = Text("FSDP cannot shard 8-bit weights", "FSDP 无法切分 8-bit 权重")
    log_words = ("Must flatten tensors", "Cannot flatten integer", "Only Tensors of floating point")
    signs = (
        Sign(says=Pattern(r"uniform dtype but got .{0,60}torch\.int8")),
        Sign(
            says=Pattern(r"Cannot flatten integer dtype tensors"),
            beside=Pattern(r"(?i)load_in_8bit|\b8-?bit|Int8Params"),
        ),
        Sign(
            says=Pattern(r"Cannot flatten integer dtype tensors"),
            unless=Pattern(r"(?i)load_in_4bit|\b4-?bit|qlora"),
            certainty=Certainty.POSSIBLE,
        ),
        Sign(
            says=Pattern(r"Only Tensors of floating point and complex dtype can require gradients"),
            frames=(("_fsdp_param", "fully_shard", "_flat_param", "fsdp_utils.py"),),
            beside=Pattern(r"(?i)load_in_8bit|\b8-?bit|Int8Params"),
        ),
    )
    cause = Text(
        "FSDP is to flatten 8-bit weights (int8) together with parameters in floating point.",
        "FSDP 要把 8-bit 权重（int8）与浮点参数展平到一起。",
    )
    cures = (
        Text(
            "Load in 4 bits with bnb_4bit_quant_storage, or in 16 bits",
            "以 4-bit 加载并设置 bnb_4bit_quant_storage，或以 16 位加载",
        ),
        Text(
            "Or train with DDP: each GPU then holds the whole 8-bit model", "或使用 DDP：每张 GPU 持有完整的 8-bit 模型"
        ),
    )
    confirm = Text("The model is loaded with load_in_8bit", "模型以 load_in_8bit 加载")

    def in_script(self, script: Script, run: Run) -> Findings:
        """A model in 8 bits, and accelerate's config asks for FSDP."""
        if b"load_in_8bit" not in script.source.data or run.accelerate is None:
            return
        kind = run.accelerate.distributed_type
        if kind.value != "FSDP":
            return
        for call in script.calls("*.BitsAndBytesConfig", "*.from_pretrained"):
            asked = call.keyword("load_in_8bit")
            if asked.truth is True:
                yield self.finding(
                    self.cause_in_script,
                    certainty=Certainty.LIKELY,
                    cure=self.cures,
                    spans=(asked.span(), kind.span(Text("FSDP is asked for here", "在此处要求使用 FSDP"))),
                )

    cause_in_script = Text(
        "The model is loaded in 8 bits, and FSDP shards floating-point parameters only.",
        "模型以 8-bit 加载，而 FSDP 只能切分浮点参数。",
    )
