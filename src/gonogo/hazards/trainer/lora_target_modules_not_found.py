from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.signs import LoggedHazard, Sign


class LoraTargetModulesNotFound(LoggedHazard):
    """The adapter's target_modules name no module of this model.
    ## What happens
    "ValueError: Target modules {'query_key_value'} not found in the base model. Please check the target modules
    and try again.", in `get_peft_model` or in the trainer that is given a `peft_config`.
    ## Why
    Each family of models names its projections in its own way: `q_proj` and `v_proj` (Llama, Qwen2 and 3,
    Mistral, Gemma), `query_key_value` (Falcon, BLOOM, ChatGLM, GPT-NeoX), `c_attn` (GPT-2, Qwen 1), `Wqkv`
    (MPT), `qkv_proj` (Phi-3), `W_pack` (Baichuan), `query` and `value` (BERT). A config copied from another
    family fits none.
    ## Example
    ```python
    LoraConfig(target_modules=["query_key_value"])      # wrong for Qwen2.5
    LoraConfig(target_modules="all-linear")             # right for any
    ```
    ## Cure
    `target_modules="all-linear"`; or the names as the model has them: `{name.rpartition(".")[2] for name, m in
    model.named_modules() if isinstance(m, nn.Linear)}`. Without target_modules PEFT knows those of common
    architectures. A model that is loaded quantized, or with remote code of another revision, may name them
    otherwise.
    ## When it is safe
    Where at least one module of the model ends with one of the names: PEFT then says nothing of the others.
    ## Sources
    - https://github.com/hiyouga/LlamaFactory/issues/3597: c_attn for Qwen1.5
    - https://github.com/linhduongtuan/BLOOM-LORA/issues/15: q_proj for BLOOM
    - https://github.com/lyhue1991/torchkeras/issues/58: query and value for ChatGLM
    """

    name = "lora-target-modules-not-found"
    title = Text("target_modules names no module of the model", "target_modules 在模型中没有对应模块")
    log_words = ("not found in the base model",)
    signs = (Sign(Pattern(r"Target modules (?P<asked>.{1,200}?) not found in the base model"), Certainty.CERTAIN),)
    cause = Text(
        "No module of the model is named as target_modules asks ({asked}).",
        "模型中没有 target_modules 所要求的模块（{asked}）。",
    )
    cures = (
        Text(
            'target_modules="all-linear", or the names that this model has: {{name.rpartition(".")[2] for '
            "name, m in model.named_modules() if isinstance(m, nn.Linear)}}",
            'target_modules="all-linear"，或该模型实际的名称：{{name.rpartition(".")[2] for name, m in '
            "model.named_modules() if isinstance(m, nn.Linear)}}",
        ),
        Text(
            "q_proj, k_proj, v_proj, o_proj: Llama, Qwen2 and 3, Mistral, Gemma; query_key_value: Falcon, "
            "BLOOM, ChatGLM; c_attn: GPT-2; qkv_proj: Phi-3",
            "q_proj、k_proj、v_proj、o_proj：Llama、Qwen2 和 3、Mistral、Gemma；query_key_value：Falcon、"
            "BLOOM、ChatGLM；c_attn：GPT-2；qkv_proj：Phi-3",
        ),
    )
