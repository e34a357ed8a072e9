import ast

from gonogo.hazards.facts.zero_files import stage_span, tests_the_stage
from gonogo.hazards.rule import Certainty, Findings, Pattern, Run, Script, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_UNWRAPPED = ("accelerate.Accelerator.unwrap_model", "accelerate.utils.extract_model_from_parallel")
_GIVE_ENGINE = Text(
    "Give accelerator.get_state_dict the prepared model (the engine), on all ranks; unwrap only for save_pretrained(…, "
    "state_dict=…)",
    "把 prepare 之后的模型（引擎）传给 accelerator.get_state_dict，并在所有 rank 上调用；仅在 save_pretrained(…, "
    "state_dict=…) 时解包",
)
_PPO = (
    Text(
        "With TRL's PPOTrainer: train with ZeRO-2, or save in its save_model through the engine (keep self.deepspeed, "
        "and take the policy's keys of its state dict); TRL 1.13 has the trainer no more",
        "使用 TRL 的 PPOTrainer 时：用 ZeRO-2 训练，或在 save_model 中通过引擎保存（保留 self.deepspeed，从其 "
        "state dict 取出 policy 的键）；TRL 1.13 起已移除该训练器",
    ),
)


_BARE = Text(
    "The bare model is asked for the gathered weights of ZeRO-3; only DeepSpeed's engine has them.",
    "向裸模型索取 ZeRO-3 聚合后的权重，而只有 DeepSpeed 引擎才有。",
)


class Zero3SavedPastTheEngine(LoggedHazard):
    """Under ZeRO-3 the bare model is asked for the gathered weights, which only DeepSpeed's engine has.
    ## What happens
    "AttributeError: 'Qwen2ForCausalLM' object has no attribute 'zero_gather_16bit_weights_on_model_save'" at the first
    save, in accelerate's `get_state_dict`. TRL's PPOTrainer does so at each save under ZeRO-3 (and ms-swift's PPO with
    it); newer transformers stop one line earlier: "'Qwen2Config' object has no attribute 'get'".
    ## Why
    `get_state_dict` lets the engine gather the partitioned weights. A model that was unwrapped, or never prepared, is
    not the engine. PPOTrainer's `save_model` sets `self.deepspeed = self.model.policy`, to save the policy without the
    value model: the bare policy.
    ## Example
    ```python
    unwrapped = accelerator.unwrap_model(model)
    state = accelerator.get_state_dict(unwrapped)    # wrong
    state = accelerator.get_state_dict(model)        # right
    unwrapped.save_pretrained("out", state_dict=state)
    ```
    ## Cure
    Give `get_state_dict` what `prepare` returned, on all ranks. With TRL's PPOTrainer: ZeRO-2, or an own `save_model`
    that saves through the engine.
    ## When it is safe
    Below ZeRO-3, where get_state_dict takes any model.
    ## Sources
    - https://github.com/huggingface/trl/issues/2885: PPOTrainer; a maintainer tells why
    - https://github.com/huggingface/trl/issues/2122: the same in TRL 0.11
    - https://github.com/modelscope/ms-swift/issues/3280: ms-swift's PPO; ZeRO-2 saves
    - https://github.com/modelscope/ms-swift/issues/4815: another PPO on top of it
    """

    name = "zero3-saved-past-the-engine"
    title = Text(
        "Weights that ZeRO-3 has partitioned are saved through the bare model, not the engine",
        "被 ZeRO-3 切分的权重通过裸模型而非引擎保存",
    )
    log_words = ("_weights_on_model_save'", "_zero3_consolidated_16bit_state_dict'", "object has no attribute 'get'")
    traces = ("model.zero_gather_16bit_weights_on_model_save()",)
    signs = (
        Sign(
            Pattern(
                r"'(?P<model>\w+)' object has no attribute "
                r"'(?:zero_gather_(?:16bit|fp16)_weights_on_model_save|_zero3_consolidated_\w+)'"
            ),
            Certainty.CERTAIN,
            unless=Pattern(r"'\w*DeepSpeedEngine' object has no attribute"),
        ),
        Sign(
            Pattern(r"'\w+Config' object has no attribute 'get'"),
            Certainty.LIKELY,
            frames=(("ppo_trainer", "PPOTrainer"), ("save_model",)),
            cause=_BARE,
        ),
        Sign(types=("AttributeError", ""), frames=(("model.zero_gather_16bit_weights_on_model_save()",),), cause=_BARE),
    )
    cause = Text(
        "accelerate asks {model} for the gathered weights of ZeRO-3; only DeepSpeed's engine has them.",
        "accelerate 向 {model} 索取 ZeRO-3 聚合后的权重，而只有 DeepSpeed 引擎才有。",
    )
    cures = (_GIVE_ENGINE, *_PPO)
    confirm = (Text("ZeRO stage 3; it works with stage 2", "ZeRO 阶段为 3；阶段 2 下可以保存"),)

    def in_script(self, script: Script, run: Run) -> Findings:
        """An unwrapped model given to ``get_state_dict``, or a PPOTrainer of TRL, under ZeRO-3."""
        if run.zero_stage != 3:
            return
        for call in script.calls("accelerate.Accelerator.get_state_dict"):
            given = call.node.args[0] if call.node.args else None
            if given is None or tests_the_stage(script, call.node):
                continue
            made = script.bound_to(given)
            calls = [each for each in script.calls(*_UNWRAPPED) if each.node is made]
            inner = isinstance(made, ast.Attribute) and made.attr == "module"
            if calls or inner:
                yield self.finding(
                    Text(
                        "`{code}` is the bare model; under ZeRO-3 get_state_dict asks DeepSpeed's engine for the "
                        "gathered weights, and ends with an AttributeError.",
                        "`{code}` 是裸模型；ZeRO-3 下 get_state_dict 要向 DeepSpeed 引擎索取聚合后的权重，会以 "
                        "AttributeError 结束。",
                    ).format(code=ast.unparse(given)),
                    certainty=Certainty.LIKELY,
                    cure=_GIVE_ENGINE,
                    spans=(call.place.span(), stage_span(run)),
                )
        if run.environment.within("trl", ">=0.12,<1.13") and str(run.arguments.get("save_strategy").get("")) != "no":
            for call in script.calls("trl.PPOTrainer", "trl.experimental.ppo.PPOTrainer"):
                trl = run.environment.field("trl")
                yield self.finding(
                    Text(
                        "TRL {trl}'s PPOTrainer saves the policy past DeepSpeed's engine: under ZeRO-3 the first "
                        "save ends with an AttributeError.",
                        "TRL {trl} 的 PPOTrainer 绕过 DeepSpeed 引擎保存策略模型：ZeRO-3 下第一次保存会以 "
                        "AttributeError 结束。",
                    ).format(trl=trl.get("< 1.13")),
                    certainty=Certainty.LIKELY,
                    cure=_PPO,
                    spans=(trl.span(), call.script.headline(call.node).span(), stage_span(run)),
                )
