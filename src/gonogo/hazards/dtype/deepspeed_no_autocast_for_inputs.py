from gonogo.hazards.rule import Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_MIXED = Pattern(
    r"mat1 and mat2 must have the same dtype, but got (?:Float and (?:BFloat16|Half)|(?:BFloat16|Half) and Float)"
    r"|Input type \((?:torch\.)?(?:cuda\.)?[Ff]loat\w*\) and (?:bias|weight) type \((?:c10::)?(?:BFloat16|Half|torch\.)"
    r"|expected scalar type (?:Float but found (?:BFloat16|Half)|(?:BFloat16|Half) but found Float)"
)
_DEEPSPEED = Pattern(r"--(?:use_)?deepspeed\b|deepspeed/runtime|distributed_type: DEEPSPEED|^deepspeed ")
_ADAPTERS = ("peft/", "lora", "bitsandbytes/")
_ADAPTED = Pattern(r"(?i)\blora(?:_enable)?\b|--bits[= ][48]|\bpeft(?:[^\w=]|$)|load_in_[48]bit|quantization_bit")


class DeepspeedNoAutocastForInputs(LoggedHazard):
    """Under DeepSpeed accelerate wraps no autocast around the model, as it does elsewhere.
    ## What happens
    `RuntimeError: mat1 and mat2 must have the same dtype, but got Float and BFloat16` (or Half), or `Input type
    (float) and bias type (c10::BFloat16) should be the same`, in the first layers of the forward inside DeepSpeed's
    engine; without --deepspeed it trains.
    ## Why
    With bf16 or fp16 the engine turns the weights to 16 bits and leaves inputs as they are. Latents, noise,
    timesteps, embeddings and masks that were made in float32 meet them; autocast would have cast them.
    ## Example
    ```python
    # wrong under DeepSpeed bf16
    pred = model(noisy_latents, timesteps)
    # right
    pred = model(noisy_latents.to(torch.bfloat16), timesteps)
    ```
    ## Cure
    Cast the model's inputs to the weights' dtype (x.to(next(model.parameters()).dtype)), or wrap the forward in
    torch.autocast("cuda", dtype=torch.bfloat16). DeepSpeed 0.17 and newer: "torch_autocast": {"enabled": true,
    "dtype": "bfloat16"} in the config, without bf16.enabled.
    ## When it is safe
    Where inputs are cast, or the config has torch_autocast (DeepSpeed 0.17 and newer).
    ## Sources
    - https://github.com/kohya-ss/sd-scripts/issues/1871: FLUX with --deepspeed
    - https://github.com/kohya-ss/sd-scripts/pull/2060: autocast around the models
    - https://github.com/THUDM/CogKit/issues/32: CogView4's patch_embed
    - https://www.deepspeed.ai/docs/config-json/: torch_autocast
    """

    name = "deepspeed-no-autocast-for-inputs"
    title = Text(
        "A float32 input meets 16-bit weights: DeepSpeed's engine does not autocast",
        "float32 输入遇到 16 位权重：DeepSpeed 引擎不做 autocast",
    )
    log_words = ("have the same dtype", "should be the same", "expected scalar type")
    traces = ("mat1 and mat2 must have the same dtype",)
    signs = (
        Sign(says=_MIXED, frames=(("deepspeed/runtime/engine.py",),), outside=_ADAPTERS, unless=_ADAPTED),
        Sign(says=_MIXED, beside=_DEEPSPEED, unless=_ADAPTED, outside=_ADAPTERS),
    )
    cause = Text(
        "An operator met a float32 input and 16-bit weights inside DeepSpeed's engine, which casts weights "
        "and not inputs.",
        "在 DeepSpeed 引擎内，算子遇到 float32 输入与 16 位权重；引擎只转换权重，不转换输入。",
    )
    cures = (
        Text(
            "Cast the model's inputs to the weights' dtype (x.to(next(model.parameters()).dtype)), or wrap "
            'the forward in torch.autocast("cuda", dtype=torch.bfloat16)',
            "把模型输入转换为权重的 dtype（x.to(next(model.parameters()).dtype)），或用 "
            'torch.autocast("cuda", dtype=torch.bfloat16) 包住前向',
        ),
        Text(
            'DeepSpeed 0.17 and newer: "torch_autocast": {"enabled": true, "dtype": "bfloat16"} in the '
            "config, without bf16.enabled",
            'DeepSpeed 0.17 及更新：在配置中写 "torch_autocast": {"enabled": true, "dtype": "bfloat16"}，不启'
            "用 bf16.enabled",
        ),
    )
    confirm = Text("The same program trains without DeepSpeed", "同一程序不用 DeepSpeed 可以训练")
