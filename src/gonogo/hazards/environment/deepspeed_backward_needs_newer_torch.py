from gonogo.hazards.facts.installed import (
    certainty_of_versions,
    describe_package,
    pip_install,
    span_of,
    together,
    version_fix,
)
from gonogo.hazards.facts.zero_files import stage_span
from gonogo.hazards.rule import Certainty, Environment, Findings, Pattern, Run, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_NO_GRAPH = Pattern(r"'NoneType' object has no attribute 'next_functions'")
_COUNTED = "count_used_parameters_in_backward"
_FAULTS = (
    (
        ">=0.18.3,<0.18.7",
        ">=2.3,<2.5",
        ("deepspeed", ">=0.18.7"),
        Text(
            "it looks for a gradient's node with gradients off, which PyTorch up to 2.4 does not have then",
            "它在关闭梯度时查找梯度的节点，而 2.4 及以前的 PyTorch 此时没有该节点",
        ),
    ),
    (
        ">=0.18.3",
        "<2.3",
        ("deepspeed", "<0.18.3"),
        Text("it asserts internals that PyTorch has from 2.3 on", "它断言 PyTorch 2.3 起才有的内部接口存在"),
    ),
)


class DeepspeedBackwardNeedsNewerTorch(LoggedHazard):
    """ZeRO's hooks of this DeepSpeed count gradients by what this PyTorch does not do in backward.
    ## What happens
    The first backward under ZeRO ends with "AttributeError: 'NoneType' object has no attribute 'next_functions'", below
    `count_used_parameters_in_backward` and torch's `_get_grad_fn_or_grad_acc`; or with "AssertionError:
    count_used_parameters_in_backward requires internal PyTorch APIs that are not available in this PyTorch build".
    ## Why
    From 0.18.3 on a hook of ZeRO-1, 2 and 3 counts the parameters of the running backward by internals of autograd.
    PyTorch before 2.3 lacks them. In PyTorch 2.3 and 2.4 `_get_grad_fn_or_grad_acc` makes a view of the parameter, and
    hooks run with gradients off, so that the view has no graph. DeepSpeed 0.18.7 turns gradients on there.
    ## Example
    ```text
    torch==2.4.0
    deepspeed==0.18.5    # wrong
    deepspeed==0.18.7    # right
    ```
    ## Cure
    DeepSpeed 0.18.7 or newer with PyTorch 2.3 and 2.4; with an older PyTorch `deepspeed<0.18.3`. Or PyTorch 2.5 or
    newer.
    ## When it is safe
    Without ZeRO; with PyTorch 2.5 or newer.
    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/issues/7830: ZeRO-3, DeepSpeed 0.18.5, PyTorch 2.3
    - https://github.com/deepspeedai/DeepSpeed/pull/7841: the cause, and the release that turns gradients on
    - https://github.com/dexmal/dexbotic/issues/66: the same with 0.18.6 and PyTorch 2.4
    - https://github.com/apple/ml-clara/issues/7: in OpenRLHF's trainer
    - https://github.com/deepspeedai/DeepSpeed/issues/7756: the assertion, with PyTorch 2.1
    """

    name = "deepspeed-backward-needs-newer-torch"
    title = Text(
        "ZeRO's hooks of this DeepSpeed need a newer PyTorch", "该 DeepSpeed 的 ZeRO hook 需要更新版本的 PyTorch"
    )
    log_words = ("next_functions", _COUNTED)
    ends_at = (("deepspeed/runtime/utils.py", _COUNTED), ("torch/autograd/graph.py", "_get_grad_fn_or_grad_acc"))
    signs = (
        Sign(Pattern(r"count_used_parameters_in_backward requires internal PyTorch APIs"), Certainty.CERTAIN),
        Sign(_NO_GRAPH, Certainty.CERTAIN, types=("AttributeError",), frames=((_COUNTED,),), lines=False),
        Sign(
            _NO_GRAPH,
            types=("AttributeError",),
            frames=(("deepspeed/runtime/", "deepspeed_engine_wrapped"), ("backward",)),
            outside=("register_grad_hook",),
            lines=False,
        ),
        Sign(_NO_GRAPH, beside=Pattern(r"(?i)deepspeed|zero[-_ ]?[123]\b"), outside=("register_grad_hook",)),
        Sign(_NO_GRAPH, Certainty.POSSIBLE, outside=("register_grad_hook",)),
    )
    cause = Text(
        "A hook of ZeRO looks for the graph of a parameter during backward, and this PyTorch makes none there.",
        "ZeRO 的一个 hook 在反向传播中查找参数的计算图，而该版本的 PyTorch 在此处不会建立它。",
    )
    cures = (
        Text(
            'pip install "deepspeed>=0.18.7" where PyTorch is 2.3 or 2.4; "deepspeed<0.18.3" where it is older',
            'PyTorch 为 2.3 或 2.4 时 pip install "deepspeed>=0.18.7"；更旧时 "deepspeed<0.18.3"',
        ),
        Text("Or PyTorch 2.5 or newer", "或使用 PyTorch 2.5 及以上"),
    )
    confirm = Text(
        "pip list shows deepspeed from 0.18.3 on beside torch before 2.5",
        "pip list 显示 deepspeed 0.18.3 及以上，而 torch 早于 2.5",
    )

    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """Those releases together, in a run with ZeRO."""
        stage = run.zero_stage
        if not stage or not together(environment, "deepspeed", "torch"):
            return
        for deepspeed, torch, install, why in _FAULTS:
            if not environment.within("deepspeed", deepspeed) or not environment.within("torch", torch):
                continue
            sure = certainty_of_versions(environment, run, "deepspeed", "torch")
            yield self.finding(
                Text(
                    "{deepspeed} does not go through a backward of ZeRO-{stage} with {torch}: {why}.",
                    "{deepspeed} 配 {torch} 时，ZeRO-{stage} 的反向传播会失败：{why}。",
                ).format(
                    deepspeed=describe_package(environment, "deepspeed"),
                    torch=describe_package(environment, "torch"),
                    stage=stage,
                    why=why,
                ),
                certainty=sure if stage > 1 else Certainty.LIKELY,  # ZeRO-1 has these hooks with overlap_comm alone
                cure=(pip_install(*install), self.cures[1]),
                spans=(span_of(environment, "deepspeed"), span_of(environment, "torch"), stage_span(run)),
                fixes=version_fix(environment, *install),
                confirm=() if sure is Certainty.CERTAIN and stage > 1 else self.confirm,
            )
            return
