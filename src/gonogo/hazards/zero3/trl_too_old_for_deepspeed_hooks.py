from gonogo.hazards.facts.zero_files import stage_span
from gonogo.hazards.rule import Certainty, Findings, Pattern, Run, Script, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign
from gonogo.hazards.zero3._online import gathering_trainers


class TrlTooOldForDeepspeedHooks(LoggedHazard):
    """TRL puts ZeRO-3's hooks back after generation by a private method that DeepSpeed 0.16.4 renamed.
    ## What happens
    "'DeepSpeedZeRoOffload' object has no attribute '_register_hooks_recursively'" in `add_hooks` of
    trl/models/utils.py, after the first generation of GRPO, PPO or online DPO under ZeRO-3.
    ## Why
    To generate quickly TRL gathers all weights, takes the hooks off, and registers them anew with
    `_register_hooks_recursively`. DeepSpeed 0.16.4 renamed it to `_register_deepspeed_module`; TRL 0.16 knows both.
    Projects that pin an old TRL (LLaMA-Factory's PPO: 0.9.6), or carry a copy of the helper, meet it with any newer
    DeepSpeed.
    ## Example
    ```text
    trl==0.15.2 deepspeed==0.16.4    # wrong
    trl==0.16.1 deepspeed==0.16.4    # right
    ```
    ## Cure
    `pip install "trl>=0.16"`; where the project needs the old TRL, `pip install "deepspeed<0.16.4"`, or
    `ds3_gather_for_generation=False`.
    ## When it is safe
    With TRL 0.16 or newer, DeepSpeed below 0.16.4, ZeRO-2, or generation in an engine.
    ## Sources
    - https://github.com/huggingface/trl/issues/2962: which releases, and the renaming
    - https://github.com/Liuziyu77/Visual-RFT/issues/91: GRPO of a project with a pinned TRL
    - https://github.com/hiyouga/LlamaFactory/issues/8114: PPO with TRL 0.9.6
    - https://github.com/om-ai-lab/VLM-R1/issues/32: DeepSpeed 0.16.4 against 0.15.4
    """

    name = "trl-too-old-for-deepspeed-hooks"
    title = Text(
        "The installed TRL calls a method of ZeRO-3 that DeepSpeed has renamed",
        "所装 TRL 调用了 DeepSpeed 已改名的 ZeRO-3 方法",
    )

    log_words = ("_register_hooks_recursively",)
    ends_at = (("trl/models/utils.py", "add_hooks"), ("trl/models/utils.py", "_register_hooks_recursively"))
    traces = ("._register_hooks_recursively(",)
    anywhere = True
    signs = (
        Sign(Pattern(r"has no attribute '_register_hooks_recursively'"), Certainty.CERTAIN),
        Sign(types=("AttributeError", ""), frames=(("_register_hooks_recursively(",),)),
    )
    cause = Text(
        "TRL's helper for generation under ZeRO-3 calls _register_hooks_recursively, which DeepSpeed 0.16.4 renamed.",
        "TRL 在 ZeRO-3 下用于生成的辅助函数调用 _register_hooks_recursively，而 DeepSpeed 0.16.4 已将其改名。",
    )
    cures = (
        Text(
            'pip install "trl>=0.16"; or, where the project needs its TRL, pip install "deepspeed<0.16.4"',
            'pip install "trl>=0.16"；若项目需要其 TRL，则 pip install "deepspeed<0.16.4"',
        ),
        Text("Until then: ds3_gather_for_generation=False", "在此之前：ds3_gather_for_generation=False"),
    )
    confirm = (Text("pip show deepspeed says 0.16.4 or newer", "pip show deepspeed 显示 0.16.4 或更新"),)

    def in_script(self, script: Script, run: Run) -> Findings:
        """A trainer that generates under ZeRO-3, with a TRL that calls the old name."""
        environment = run.environment
        if not environment.within("trl", ">=0.8,<0.16") or not environment.within("deepspeed", ">=0.16.4"):
            return
        trl, deepspeed = environment.field("trl"), environment.field("deepspeed")
        for call in gathering_trainers(script, run):
            yield self.finding(
                Text(
                    "TRL {trl} puts ZeRO-3's hooks back by `_register_hooks_recursively`, which DeepSpeed "
                    "{deepspeed} (any since 0.16.4) has renamed: the first generation ends with an AttributeError.",
                    "TRL {trl} 通过 `_register_hooks_recursively` 重新挂上 ZeRO-3 的钩子，而 DeepSpeed "
                    "{deepspeed}（自 0.16.4 起）已将其改名：第一次生成会以 AttributeError 结束。",
                ).format(trl=trl.get("< 0.16"), deepspeed=deepspeed.get(">= 0.16.4")),
                cure=self.cures,
                spans=(trl.span(), call.script.headline(call.node).span(), deepspeed.span(), stage_span(run)),
            )
