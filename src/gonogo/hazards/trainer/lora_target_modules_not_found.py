from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class LoraTargetModulesNotFound(LoggedHazard):
    """The adapter's target_modules name no module of this model.
    ## What happens
    "ValueError: Target modules {'query_key_value'} not found in the base model. Please check the target modules
    and try again.", in `get_peft_model` or in the trainer that is given a `peft_config`; with `[]` or `set()` where a
    helper looked for them; "Please specify `target_modules` in `peft_config`" where PEFT has no default for it.
    ## Why
    Each family of models names its projections in its own way: `q_proj` and `v_proj` (Llama, Qwen2 and 3,
    Mistral, Gemma), `query_key_value` (Falcon, BLOOM, ChatGLM, GPT-NeoX), `c_attn` (GPT-2, Qwen 1), `Wqkv`
    (MPT), `qkv_proj` (Phi-3), `W_pack` (Baichuan), `query` and `value` (BERT). A config copied from another
    family fits none. Helpers that collect "all linear layers" look for one class (`bnb.nn.Linear4bit`): in a model that
    is not quantized so they find none.
    ## Example
    ```python
    LoraConfig(target_modules=["query_key_value"])      # wrong for Qwen2.5
    LoraConfig(target_modules="all-linear")             # right for any
    ```
    ## Cure
    `target_modules="all-linear"`; or the names as the model has them: `{name.rpartition(".")[2] for name, m in
    model.named_modules() if isinstance(m, nn.Linear)}`. Without target_modules PEFT knows those of common
    architectures. A model that is loaded quantized, or with remote code of another revision, may name them
    otherwise. In a helper: let it look for torch.nn.Linear as well.
    ## When it is safe
    Where at least one module of the model ends with one of the names: PEFT then says nothing of the others.
    ## Sources
    - https://github.com/hiyouga/LlamaFactory/issues/3597: c_attn for Qwen1.5
    - https://github.com/linhduongtuan/BLOOM-LORA/issues/15: q_proj for BLOOM
    - https://github.com/lyhue1991/torchkeras/issues/58: query and value for ChatGLM
    - https://github.com/hiyouga/LlamaFactory/issues/181: q_proj for Baichuan, which has W_pack
    - https://github.com/wp931120/baichuan_sft_lora/issues/1: a helper that found none
    """

    name = "lora-target-modules-not-found"
    title = Text("target_modules names no module of the model", "target_modules 在模型中没有对应模块")
    log_words = ("not found in the base model", "Please specify `target_modules`")
    ends_at = (("peft/tuners/", "not found in the base model"), ("peft/tuners/", "Please specify `target_modules`"))
    traces = ("check the target modules and try again",)
    anywhere = True
    signs = (
        # Which of the causes it has, the line does not say: a copied config, a helper that found none, a wrapped model.
        Sign(Pattern(r"Target modules? (?P<asked>.{0,200}?) ?not found in the base model"), Certainty.POSSIBLE),
        Sign(
            Pattern(r"Please specify `target_modules`"),
            Certainty.POSSIBLE,
            cause=Text(
                "PEFT has no default target modules for this architecture, and none are given.",
                "PEFT 没有该架构的默认目标模块，而配置中也没有指定。",
            ),
        ),
    )
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
        Text(
            "If a helper collects them and found none: it looks for quantized layers; let it look for torch.nn.Linear",
            "若由辅助函数收集而结果为空：它只找量化层；让它也找 torch.nn.Linear",
        ),
    )
    confirm = Text("print(model) shows other names", "print(model) 显示其他名称")
