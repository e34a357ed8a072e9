from gonogo.hazards.rule import Certainty, Findings, Pattern, Run, Script, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_NO_GRADIENT = Pattern(r"[Oo]nly Tensors of floating point (?:and complex )?dtype can require gradients")
"""What PyTorch says where a parameter is made anew of packed bytes, as FSDP does when it loads or shards."""
_OTHER = Pattern(r"(?i)load_in_8bit|\b8-?bit|Int8Params|zero[-_ ]?3|\bstage\W{1,4}3\b|partition_parameters|chatglm")
_LIBRARIES = ("bitsandbytes/", "torch/", "transformers/", "accelerate/", "peft/")
_FLOATS = ("torch.bfloat16", "torch.float16", "torch.float32")


class Fsdp4bitQuantStorage(LoggedHazard):
    """QLoRA under FSDP with bnb_4bit_quant_storage left at uint8.
    ## What happens
    `ValueError: Must flatten tensors with uniform dtype but got torch.bfloat16 and torch.uint8` while the model is
    wrapped (under older releases `Cannot flatten integer dtype tensors`), or `RuntimeError: Only Tensors of floating
    point and complex dtype can require gradients` while it is loaded.
    ## Why
    bitsandbytes packs two 4-bit weights into a byte. FSDP joins all parameters of a wrapped module into one tensor
    of one floating dtype; it can carry the packed bytes only where they are stored under the dtype of the rest.
    ## Example
    ```python
    # wrong: the 4-bit weights are stored as uint8
    BitsAndBytesConfig(load_in_4bit=True)
    # right, for a model that is loaded in bf16
    BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_storage=torch.bfloat16)
    ```
    ## Cure
    Set bnb_4bit_quant_storage to the dtype that the model is loaded in (torch_dtype), such as torch.bfloat16. LoRA
    adapters in the same dtype: autocast_adapter_dtype=False, or model.to(torch.bfloat16) before wrapping.
    ## When it is safe
    Where `bnb_4bit_quant_storage` is the dtype that the model is loaded in, or under FSDP2.
    ## Sources
    - https://github.com/axolotl-ai-cloud/axolotl/issues/1494: float32 and uint8 in QLoRA
    - https://huggingface.co/docs/bitsandbytes/main/en/fsdp_qlora: why the storage dtype has to be that of the model
    - https://github.com/bitsandbytes-foundation/bitsandbytes/issues/1232: refused while it is loaded; a float dtype
    - https://github.com/huggingface/peft/issues/2344: quantized adapters under FSDP2
    """

    name = "fsdp-4bit-quant-storage"
    title = Text("FSDP cannot flatten 4-bit weights that are stored as bytes", "FSDP 无法展平以字节存储的 4-bit 权重")
    yields_to = ("fsdp-8bit-weights",)
    log_words = ("Must flatten tensors", "Cannot flatten integer", "nly Tensors of floating point")
    signs = (
        Sign(says=Pattern(r"uniform dtype but got .{0,60}torch\.uint8")),
        Sign(says=Pattern(r"Cannot flatten integer dtype tensors"), beside=Pattern(r"(?i)load_in_4bit|\b4-?bit|qlora")),
        Sign(
            says=Pattern(r"Cannot flatten integer dtype tensors"),
            unless=Pattern(r"(?i)load_in_8bit|\b8-?bit|Int8Params"),
            certainty=Certainty.POSSIBLE,
        ),
        Sign(says=_NO_GRADIENT, beside=Pattern(r"(?i)fsdp|fully_shard"), unless=_OTHER),
        Sign(_NO_GRADIENT, Certainty.POSSIBLE, types=("RuntimeError",), unless=_OTHER, innermost=_LIBRARIES),
    )
    cause = Text(
        "FSDP is to flatten parameters in floating point together with weights that are stored as uint8, as "
        "4-bit ones are by default.",
        "FSDP 要把浮点参数与以 uint8 存储的权重展平到一起；4-bit 权重默认就以 uint8 存储。",
    )
    cures = (
        Text(
            "Set bnb_4bit_quant_storage to the dtype that the model is loaded in (torch_dtype), such as torch.bfloat16",
            "把 bnb_4bit_quant_storage 设为加载模型所用的 dtype（torch_dtype），例如 torch.bfloat16",
        ),
        Text(
            "LoRA adapters in the same dtype: autocast_adapter_dtype=False, or model.to(torch.bfloat16) "
            "before wrapping",
            "LoRA 适配器使用同一 dtype：autocast_adapter_dtype=False，或包装之前 model.to(torch.bfloat16)",
        ),
    )
    confirm = Text(
        "The quantization config has load_in_4bit and no bnb_4bit_quant_storage",
        "量化配置中有 load_in_4bit 而没有 bnb_4bit_quant_storage",
    )

    def in_script(self, script: Script, run: Run) -> Findings:
        """A 4-bit model under FSDP whose weights are stored as bytes, which FSDP can't flatten with the others."""
        if b"load_in_4bit" not in script.source.data or run.accelerate is None:
            return
        kind = run.accelerate.distributed_type
        if kind.value != "FSDP" or str(run.accelerate.get("fsdp_config", "fsdp_version").get(1)) == "2":
            return
        for call in script.calls("*.BitsAndBytesConfig"):
            if call.keyword("load_in_4bit").truth is not True or not call.keyword("bnb_4bit_quant_storage").absent:
                continue
            compute = call.keyword_node("bnb_4bit_compute_dtype")
            name = script.qualified(compute) if compute is not None else None
            dtype = script.place(compute).text if compute is not None and name in _FLOATS else None
            edit = script.setting_keyword(call, "bnb_4bit_quant_storage", dtype) if dtype else None
            yield self.finding(
                Text(
                    "The 4-bit weights are stored as uint8 (no bnb_4bit_quant_storage): FSDP flattens them together "
                    "with floating-point parameters, and refuses.",
                    "4-bit 权重以 uint8 存储（未给出 bnb_4bit_quant_storage）：FSDP 要把它们与浮点参数展平到一起，会拒"
                    "绝。",
                ),
                cure=Text(
                    "Give the dtype that the model is loaded in (torch_dtype): bnb_4bit_quant_storage={dtype}",
                    "设为加载模型所用的 dtype（torch_dtype）：bnb_4bit_quant_storage={dtype}",
                ).format(dtype=dtype or "torch.bfloat16"),
                spans=(call.place.span(), kind.span(Text("FSDP is asked for here", "在此处要求使用 FSDP"))),
                fixes=self.fix(Text("Store the weights as the compute dtype", "以计算所用的 dtype 存储权重"), edit)
                if edit is not None
                else None,
            )
