from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_TIED = Pattern(r"^['\"](?:[\w.]+\.)?(?:lm_head|embed_tokens|wte|shared|embed_out)\.weight['\"]")


class Fsdp2TiedWeightsLoad(LoggedHazard):
    """Two names of one weight (the embedding and the head) are one in the model and two in the state dict, or the
    other way round.
    ## What happens
    `KeyError: 'lm_head.weight'` in `_prepare_fsdp2`, or `Parameter 'lm_head.weight' found in sharded model state
    dict but missing from full state dict`, or `FSDP2 mapping failed (missing: ...)`, while the model is prepared.
    ## Why
    accelerate maps the optimizer's parameters by name before and after `fully_shard`. `tie_word_embeddings` says
    tied and the checkpoint holds both weights (transformers 5 then leaves them apart), or a tied pair is stored
    once: a name has no counterpart.
    ## Example
    ```python
    # wrong: the config says tied, the checkpoint has both weights
    model = AutoModelForCausalLM.from_pretrained(path)
    # right
    model = AutoModelForCausalLM.from_pretrained(path)
    model.config.tie_word_embeddings = False
    ```
    ## Cure
    Set model.config.tie_word_embeddings to what the checkpoint holds (False where it has both weights), right after
    loading. Or fsdp_cpu_ram_efficient_loading: false, or upgrade accelerate and transformers together.
    ## When it is safe
    Where config and checkpoint agree on whether the head is tied.
    ## Sources
    - https://github.com/huggingface/accelerate/issues/3870: KeyError: 'lm_head.weight' with Qwen3-1.7B
    - https://github.com/huggingface/accelerate/pull/3878: the message that says it
    - https://github.com/axolotl-ai-cloud/axolotl/issues/3056: Qwen3 under FSDP2 in axolotl
    - https://github.com/verl-project/verl/issues/7834: tied embeddings in verl's FSDP2 loading
    """

    name = "fsdp2-tied-weights-load"
    title = Text(
        "FSDP2's reload of the state dict does not know a tied weight", "FSDP2 重新加载 state dict 时不认识绑定的权重"
    )
    ends_at = (
        ("", "fsdp2_load_full_state_dict"),
        ("accelerate/accelerator.py", "new_named_params[n]"),
        ("accelerate/utils/fsdp_utils.py", "fsdp2_load_full_state_dict(accelerator"),
    )
    log_words = ("found in sharded model state dict", "FSDP2 mapping failed", "lm_head.weight", "embed_tokens.weight")
    signs = (
        Sign(says=Pattern(r"FSDP2 mapping failed \(missing:.*tied embeddings"), certainty=Certainty.CERTAIN),
        Sign(says=Pattern(r"found in sharded model state dict but missing from full state dict")),
        Sign(says=_TIED, types=("KeyError",), frames=(("fsdp_utils.py", "_prepare_fsdp2", "fsdp2_", "fsdp2.py"),)),
        Sign(
            says=_TIED,
            types=("KeyError",),
            beside=Pattern(r"(?i)fsdp_?version['\"]?\s*[:=]\s*['\"]?2|fsdp2|fully_shard"),
        ),
        Sign(
            says=_TIED,
            types=("KeyError",),
            unless=Pattern(r"(?i)deepspeed|\bvllm\b|zero_to_fp32|safetensors|sglang|convert|rollout|sharding_manager"),
            certainty=Certainty.POSSIBLE,
        ),
    )
    cause = Text(
        "FSDP2's preparation looks for a weight by name that is tied to another one in the model and not in "
        "the state dict (or the other way round).",
        "FSDP2 的准备按名字查找一个权重，它在模型中与另一个绑定、而在 state dict 中没有（或相反）。",
    )
    cures = (
        Text(
            "Set model.config.tie_word_embeddings to what the checkpoint holds (False where it has both "
            "weights), right after loading",
            "加载之后立即把 model.config.tie_word_embeddings 设为与 checkpoint 一致（两份都有时设为 False）",
        ),
        Text(
            "Or fsdp_cpu_ram_efficient_loading: false, or upgrade accelerate and transformers together",
            "或 fsdp_cpu_ram_efficient_loading: false，或一起升级 accelerate 与 transformers",
        ),
    )
    confirm = Text(
        "The traceback passes fsdp2_prepare_model or _prepare_fsdp2",
        "traceback 经过 fsdp2_prepare_model 或 _prepare_fsdp2",
    )
