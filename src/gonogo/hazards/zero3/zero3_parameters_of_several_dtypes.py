from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class Zero3ParametersOfSeveralDtypes(LoggedHazard):
    """ZeRO-3 lays the trained parameters into one buffer, and they are not of one data type.
    ## What happens
    `assert len(set(t.dtype for t in tensors)) == 1`, an AssertionError without words, in `defragment` of
    `deepspeed/runtime/zero/stage3.py`, while the engine is built.
    ## Why
    ZeRO-3 copies the partitions of all trained parameters into one flat tensor. DeepSpeed casts the model only where
    its config switches bf16 or fp16 on; else a head, adapter or norm in float32 stands beside weights in 16 bits.
    ## Example
    ```json
    {"zero_optimization": {"stage": 3}}                                 // wrong for a model of float32 and bf16 parts
    {"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}      // right
    ```
    ## Cure
    Switch bf16 (or fp16) on in the DeepSpeed config and the training arguments alike, or load all of the model in one
    data type, what is added to it (value head, adapter, resized embedding) included.
    ## When it is safe
    With one data type for all trained parameters, or with ZeRO-2.
    ## Sources
    - https://github.com/richard-peng-xia/MMed-RAG/issues/8: bf16 switched off for a model loaded in 16 bits
    - https://github.com/huggingface/trl/issues/1770: KTO under ZeRO-3
    - https://github.com/hiyouga/LlamaFactory/issues/3634: DPO under ZeRO-3
    """

    name = "zero3-parameters-of-several-dtypes"
    title = Text("ZeRO-3 is given trained parameters of several data types", "交给 ZeRO-3 的可训练参数有多种数据类型")
    log_words = ("set(t.dtype for t in tensors)",)
    signs = (
        Sign(
            types=("AssertionError",),
            frames=(("zero/stage3.py",), ("defragment",), ("t.dtype for t in",)),
            certainty=Certainty.CERTAIN,
            lines=False,
        ),
        Sign(cut=(("zero/stage3.py", "t.dtype for t in tensors"),), within=1),
        Sign(Pattern(r"assert len\(set\(t\.dtype for t in tensors\)\) == 1")),
    )
    cause = Text(
        "ZeRO-3 lays the trained parameters into one buffer, and they are not all of one data type.",
        "ZeRO-3 要把可训练参数放入同一个缓冲区，而它们的数据类型不一致。",
    )
    cures = (
        Text(
            "Switch bf16 (or fp16) on in the DeepSpeed config and the training arguments alike",
            "在 DeepSpeed 配置和训练参数中同时开启 bf16（或 fp16）",
        ),
        Text(
            "Load all of the model in one data type, what is added to it (value head, adapter, embedding) included",
            "以同一数据类型加载整个模型，包括额外添加的部分（value head、adapter、embedding）",
        ),
    )
    confirm = (
        Text(
            "{p.dtype for p in model.parameters() if p.requires_grad} has more than one element before the engine is "
            "built",
            "构建引擎之前，{p.dtype for p in model.parameters() if p.requires_grad} 中不止一个元素",
        ),
    )
