from gonogo.evidence.log.failure_log import FailureLog
from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import Evidence, LoggedHazard, Sign

_ADAPTERS = Pattern(r"base_layer|lora_[AB]|base_model|modules_to_save|\.default\.weight")
_LOADS = ("load_weights", "add_lora", "update_weights", "load_lora")
_SYNCS = (
    "sharding_manager",
    "update_params",
    "update_weights",
    "_update_weights",
    "_move_model_to_vllm",
    "sync_weights",
    "update_named_param",
)
_STARTS = ("init_model", "load_model", "get_model")
"""An engine that is started from a folder: an adapter's, where its names are met there, and nothing is sent."""
_WITH_ADAPTER = Pattern(r"base_sync_done|enable_lora=True|TensorLoRARequest|LoraConfig\(|lora_rank\s*[=:]\s*[1-9]")


class LoraWeightSyncNamesDiffer(LoggedHazard):
    """Weights of a LoRA model are sent to the rollout engine under names or shapes that it does not expect.
    ## What happens
    "KeyError: 'layers.0.self_attn.qkv_proj.base_layer.weight'", "There is no module or parameter named 'base_model' in
    Qwen2ForCausalLM", "… is unsupported LoRA weight", "KeyError: 'embed_tokens.weight'" in the engine's `load_weights`
    or `add_lora` while weights are synchronised.
    ## Why
    PEFT wraps each layer: `base_model.model.….base_layer.weight`, `lora_A.default.weight`. A trainer either merges the
    adapter and strips these parts, or sends base weights once and then the adapter in the layout that the engine
    serves. Releases of PEFT, the trainer and the engine that do not go together, or a model type (MoE, Megatron export)
    that the mapping forgets, leave names over.
    ## Example
    ```yaml
    policy: {lora: {enabled: true}, merge_lora: false}   # wrong for a fused MoE
    policy: {lora: {enabled: true}, merge_lora: true}    # right
    ```
    ## Cure
    Use releases that go together; let the trainer merge before it syncs (`merge_lora=True`, `layered_summon=False`,
    `enable_lora=False` in the engine); leave modules out of `target_modules` that the engine fuses.
    ## When it is safe
    With full fine-tuning, or where the adapter is merged before the sync.
    ## Sources
    - https://github.com/TIGER-AI-Lab/verl-tool/issues/125: base_layer.weight after the first step
    - https://github.com/verl-project/verl/issues/6256: Megatron-Bridge LoRA: embed_tokens.weight
    - https://github.com/huggingface/trl/issues/2698: GRPO: adapter-named keys in vLLM
    - https://github.com/NovaSky-AI/SkyRL/issues/1852: fused MoE experts in another layout than the engine's
    """

    name = "lora-weight-sync-names-differ"
    title = Text("The engine does not know the names of the adapter's weights", "引擎不认识适配器权重的名称")

    ends_at = (("vllm/model_executor/models/", "params_dict[name]"),)
    traces = ("_update_weights(weights, peft_config",)
    log_words = ("base_layer", "unsupported LoRA weight", "no module or parameter named", "peft_config")
    anywhere = True
    signs = (
        Sign(_ADAPTERS, types=("KeyError", "ValueError", "RuntimeError"), frames=(_LOADS,)),
        Sign(Pattern(r"KeyError: '[^']*(?:base_layer|lora_[AB]|base_model\.model)[^']*'")),
        Sign(
            Pattern(
                r"There is no module or parameter named '(?:base_model|[\w.]*lora)|is unsupported LoRA weight"
                r"|is not (?:a )?supported LoRA|While loading .*expected target modules in"
            )
        ),
        Sign(
            types=("KeyError", "ValueError", "AssertionError", "RuntimeError", ""),
            frames=(_SYNCS, ("peft_config",), _LOADS),
        ),
        Sign(Pattern(r"KeyError: '[\w.]+(?:weight|bias)'"), beside=_WITH_ADAPTER),
        Sign(
            Pattern(r"KeyError: '[\w.]+(?:weight|bias)'"), beside=Pattern(r"peft_config="), certainty=Certainty.LIKELY
        ),
        Sign(
            Pattern(r"KeyError: '(?:[\w.]+\.)?(?:embed_tokens|lm_head)\.weight'"),
            frames=(("rollout", "sharding_manager", "generate_sequences"),),
            certainty=Certainty.POSSIBLE,
        ),
        Sign(
            Pattern(r"Call to add_lora method failed|add_lora.* failed|LoRA rank \d+ is greater than max_lora_rank"),
            certainty=Certainty.LIKELY,
        ),
    )
    cause = Text(
        "Weights with PEFT's names, or an adapter in another layout, reached an engine that expects the "
        "plain model's: merging or renaming before the sync is missing for this combination.",
        "带有 PEFT 名称的权重或另一种布局的适配器到达了只认普通模型名称的引擎：这一组合缺少同步前的合并或改名。",
    )
    cures = (
        Text(
            "Let the trainer merge the adapter before the sync (merge_lora=True; verl: without enable_lora "
            "in the engine), or use releases of trainer, PEFT and vLLM that go together",
            "同步前让训练器合并适配器（merge_lora=True；verl：引擎不启用 enable_lora），或使用配套的训练"
            "器、PEFT 与 vLLM 版本",
        ),
        Text(
            "Keep target_modules to the attention and MLP projections that the engine supports for LoRA",
            "target_modules 只包含引擎支持 LoRA 的注意力与 MLP 投影层",
        ),
    )
    confirm = (Text("With full fine-tuning (no peft_config) the sync works", "全参数训练（无 peft_config）时同步正常"),)

    def sureness(self, log: FailureLog, sign: Sign, evidence: Evidence) -> Certainty | None:
        """Less where the engine was only started: it was given an adapter in place of a model."""
        return Certainty.POSSIBLE if log.passes(*_STARTS) and not log.passes(*_SYNCS) else sign.certainty
