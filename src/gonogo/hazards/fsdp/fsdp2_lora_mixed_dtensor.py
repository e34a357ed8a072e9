from gonogo.hazards.fsdp._mixed import GENERATES, MIXED, RECOMPUTES
from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class Fsdp2LoraMixedDtensor(LoggedHazard):
    """An adapter's layer or its base layer is used while FSDP2 has it sharded, or was never sharded at all.
    ## What happens
    `aten.mm.default: got mixed torch.Tensor and DTensor` in a linear of PEFT (`lora/layer.py`, `lora/bnb.py`), in
    the forward.
    ## Why
    FSDP2 gathers parameters when the module that was given to `fully_shard` runs. A LoRA weight that is read beside
    it (DoRA, `modules_to_save`, a tied head, `get_delta_weight`), a root that was not wrapped, or an accelerate
    that did not know FSDP2 yet (before 1.6) leaves one side a DTensor.
    ## Example
    ```python
    # wrong: only the decoder layers are sharded, the root with its embeddings and head is not
    for layer in model.base_model.model.model.layers:
        fully_shard(layer)
    # right
    fully_shard(model)
    ```
    ## Cure
    Let accelerate (>= 1.6, fsdp_version: 2) wrap the model, or call fully_shard on every layer with adapters and
    last on the root. Upgrade peft, accelerate and transformers together; DoRA and modules_to_save need recent ones.
    Or train with FSDP1 (fsdp_version: 1).
    ## When it is safe
    Where accelerate >= 1.6 wraps the model by itself, and nothing reads a weight outside its module's forward.
    ## Sources
    - https://github.com/huggingface/peft/issues/2344: PEFT with hand-made FSDP2
    - https://github.com/huggingface/trl/issues/4550: LoRA under FSDP2 in GRPO
    - https://github.com/huggingface/peft/pull/3102: a LoRA layer that reads its weights apart
    """

    name = "fsdp2-lora-mixed-dtensor"
    title = Text(
        "LoRA under FSDP2: a plain tensor meets a DTensor weight", "FSDP2 下的 LoRA：普通张量遇到 DTensor 权重"
    )
    log_words = ("mixed torch.Tensor and DTensor",)
    ends_at = (("tensor/_dispatch.py", "_try_replicate_spec_for_scalar_tensor"),)
    yields_to = ("fsdp2-method-outside-forward", "fsdp2-checkpoint-recompute-resharded")
    signs = (
        Sign(says=MIXED, frames=(("peft/", "lora"),), outside=GENERATES + RECOMPUTES + ("clip_grad", "torch/optim/")),
        Sign(
            says=Pattern(r"aten\.(?:mm|addmm|linear|matmul|bmm|t|add)\b[.\w]*:? got mixed torch\.Tensor"),
            beside=Pattern(r"(?i)\blora|\bpeft\b"),
            outside=GENERATES + RECOMPUTES,
        ),
        Sign(
            says=Pattern(r"aten\.(?:mm|addmm|linear|matmul|bmm|t|add)\b[.\w]*:? got mixed torch\.Tensor"),
            outside=GENERATES + RECOMPUTES,
            certainty=Certainty.POSSIBLE,
        ),
    )
    cause = Text(
        "An operator of a linear with LoRA got a DTensor weight and a plain tensor: one of the two was not "
        "gathered (or not sharded) by the FSDP2 module that ran.",
        "带 LoRA 的线性层的算子得到一个 DTensor 权重和一个普通张量：其中之一没有被正在运行的 FSDP2 模块聚合（"
        "或切分）。",
    )
    cures = (
        Text(
            "Let accelerate (>= 1.6, fsdp_version: 2) wrap the model, or call fully_shard on every layer "
            "with adapters and last on the root",
            "让 accelerate（>= 1.6，fsdp_version: 2）包装模型，或对每个带适配器的层调用 fully_shard，最后对根模块调用",
        ),
        Text(
            "Upgrade peft, accelerate and transformers together; DoRA and modules_to_save need recent ones",
            "一起升级 peft、accelerate、transformers；DoRA 与 modules_to_save 需要较新的版本",
        ),
        Text("Or train with FSDP1 (fsdp_version: 1)", "或使用 FSDP1（fsdp_version: 1）"),
    )
    confirm = Text("The same run without the adapters works", "去掉适配器后同样的训练可以运行")
