from gonogo.hazards.rule import Certainty, Findings, Launch, Pattern, Run, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class OptimizerStateKeyedByReplacedParameter(LoggedHazard):
    """Muon and the like mark each parameter when they are made, and meet others in step().
    ## What happens
    `KeyError: 'use_muon'` (or another key of the optimizer's own) in `step()`, or `KeyError: Parameter containing:
    ...`, under DeepSpeed ZeRO or FSDP; under DDP it trains.
    ## Why
    `self.state[p]["use_muon"] = True` is written for the model's parameters. ZeRO puts flat fp32 partitions of its
    own into `param_groups`, FSDP1 its flat parameters: `self.state` has nothing for them, and a matrix is a vector
    by then.
    ## Example
    ```python
    # wrong under ZeRO and FSDP1
    self.state[p]["use_muon"] = True
    # right: what a group is, in the group itself
    groups = [{"params": matrices, "use_muon": True}, {"params": rest, "use_muon": False}]
    ```
    ## Cure
    Train with DDP, or with FSDP2 and an optimizer that knows DTensor. DeepSpeed: its own Muon (optimizer.type:
    Muon, 0.17 and newer), or AdamW. In an optimizer of your own: keep flags in param_groups, and make state in
    step().
    ## When it is safe
    Under DDP, or with an optimizer that was made for ZeRO or DTensor.
    ## Sources
    - https://github.com/MoonshotAI/Moonlight/issues/6: KeyError: 'use_muon' with zero2 and zero3
    - https://github.com/MoonshotAI/Moonlight/issues/25: the toy Muon supports neither
    - https://github.com/axolotl-ai-cloud/axolotl/pull/2464: a check for Muon with DeepSpeed and FSDP
    """

    name = "optimizer-state-keyed-by-replaced-parameter"
    title = Text(
        "A custom optimizer keeps state by parameter objects that ZeRO or FSDP replaces",
        "自定义优化器按参数对象保存状态，而 ZeRO 或 FSDP 会替换这些对象",
    )
    log_words = ("use_muon", "Parameter containing", "KeyError")
    ends_at = (("optimizers/muon.py", "self.state[p]"),)
    signs = (
        Sign(says=Pattern(r"^['\"]use_muon['\"]"), types=("KeyError",)),
        Sign(
            says=Pattern(r"^(?:Parameter containing|tensor\()"),
            types=("KeyError",),
            frames=(("optim", "muon", "step"),),
        ),
        Sign(
            types=("KeyError",),
            says=Pattern(r"^['\"]\w+['\"]$"),
            innermost=("self.state[", "state[p]"),
            frames=(("self.state[", "state[p]"),),
            beside=Pattern(r"(?i)deepspeed|zero_?[123]|fsdp"),
            outside=("torch/optim/",),
            lines=False,
        ),
    )
    cause = Text(
        "The optimizer looked up state of its own for a parameter that it was never given: ZeRO or FSDP put "
        "its flat partitions in place.",
        "优化器为从未交给它的参数查找自己的状态：ZeRO 或 FSDP 换上了自己的展平分片。",
    )
    cures = (
        Text(
            "Train with DDP, or with FSDP2 and an optimizer that knows DTensor",
            "使用 DDP，或使用 FSDP2 与支持 DTensor 的优化器",
        ),
        Text(
            "DeepSpeed: its own Muon (optimizer.type: Muon, 0.17 and newer), or AdamW",
            "DeepSpeed：使用其自带的 Muon（optimizer.type: Muon，0.17 及更新），或 AdamW",
        ),
        Text(
            "In an optimizer of your own: keep flags in param_groups, and make state in step()",
            "自写优化器：把标志放在 param_groups 中，在 step() 中创建状态",
        ),
    )
    confirm = Text("It trains without DeepSpeed and FSDP", "不用 DeepSpeed 与 FSDP 可以训练")

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """ms-swift's Muon, which is the toy one, with a ZeRO config."""
        name = launch.options.get("optimizer")
        if launch.framework != "ms-swift" or name.string != "muon" or launch.options.get("deepspeed").absent:
            return
        yield self.finding(
            Text(
                "This Muon marks the model's parameters, and ZeRO replaces them with partitions of its own: "
                "step() fails.",
                "该 Muon 标记的是模型的参数，而 ZeRO 会换成自己的分片：step() 会失败。",
            ),
            certainty=Certainty.LIKELY,
            cure=self.cures[:2],
            spans=(name.span(), launch.options.get("deepspeed").span()),
        )
