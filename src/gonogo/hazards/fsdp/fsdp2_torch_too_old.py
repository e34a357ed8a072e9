from gonogo.hazards.facts.installed import certainty_of_versions, describe_package, span_of, version_fix
from gonogo.hazards.rule import Certainty, Environment, Findings, Pattern, Run, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_IMPORT = Pattern(
    r"cannot import name '(?:fully_shard|FSDPModule|UnshardHandle|CPUOffloadPolicy|MixedPrecisionPolicy|OffloadPolicy"
    r"|register_fsdp_forward_method)' from 'torch\.distributed\.(?:fsdp|_composable\.fsdp)"
)


class Fsdp2TorchTooOld(LoggedHazard):
    """fsdp_version: 2 (or a framework's FSDP2) with a PyTorch before 2.6.
    ## What happens
    `ImportError: FSDP2 requires PyTorch >= 2.6.0`, `cannot import name 'fully_shard' from
    'torch.distributed.fsdp'`, `'function' object has no attribute 'FSDPModule'`.
    ## Why
    `fully_shard` came as `torch.distributed._composable.fsdp` in 2.4 and moved to `torch.distributed.fsdp` in 2.6;
    before that its module and its function share a name. accelerate and transformers ask for 2.6.
    ## Example
    ```text
    torch==2.5.1    # wrong with fsdp_version: 2
    torch==2.6.0    # right
    ```
    ## Cure
    pip install "torch>=2.6" with the torchvision and flash-attn that go with it. Or stay with FSDP1: fsdp_version:
    1.
    ## When it is safe
    With torch >= 2.6, or FSDP1.
    ## Sources
    - https://github.com/verl-project/verl/issues/4996: FSDP2 with torch 2.5.1 in verl
    - https://github.com/EleutherAI/bergson/pull/251: the import that fails
    - https://github.com/pytorch/pytorch/pull/141868: the move to torch.distributed.fsdp in 2.6
    - https://github.com/huggingface/transformers/pull/46141: transformers asks for 2.6
    """

    name = "fsdp2-torch-too-old"
    title = Text("This PyTorch is older than FSDP2 needs", "PyTorch 版本低于 FSDP2 的要求")
    log_words = ("FSDP2 requires", "'fully_shard'", "'FSDPModule'", "OffloadPolicy'", "MixedPrecisionPolicy'")
    signs = (
        Sign(says=Pattern(r"FSDP2 requires (?:PyTorch|torch) ?>="), certainty=Certainty.CERTAIN),
        Sign(says=_IMPORT, certainty=Certainty.CERTAIN),
        Sign(says=Pattern(r"'function' object has no attribute 'FSDPModule'"), certainty=Certainty.CERTAIN),
        Sign(says=Pattern(r"No module named 'torch\.distributed\._composable\.fsdp")),
    )
    cause = Text("FSDP2's names are not in the installed PyTorch.", "已安装的 PyTorch 没有 FSDP2 所需的名字。")
    cures = (
        Text(
            'pip install "torch>=2.6" with the torchvision and flash-attn that go with it',
            '执行 pip install "torch>=2.6"，并换成与之对应的 torchvision 与 flash-attn',
        ),
        Text("Or stay with FSDP1: fsdp_version: 1", "或继续使用 FSDP1：fsdp_version: 1"),
    )
    confirm = Text(
        'python -c "import torch; print(torch.__version__)" says less than 2.6',
        'python -c "import torch; print(torch.__version__)" 小于 2.6',
    )

    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """accelerate's fsdp_version: 2 and a torch before 2.6."""
        if run.accelerate is None or run.accelerate.distributed_type.value != "FSDP":
            return
        version = run.accelerate.get("fsdp_config", "fsdp_version")
        if str(version.get("")) != "2" or not environment.within("torch", "<2.6"):
            return
        yield self.finding(
            Text(
                "fsdp_version is 2, and {torch} is older than the 2.6 that it needs.",
                "fsdp_version 为 2，而 {torch} 低于其要求的 2.6。",
            ).format(torch=describe_package(environment, "torch")),
            certainty=certainty_of_versions(environment, run, "torch"),
            cure=self.cures,
            spans=(span_of(environment, "torch"), version.span()),
            fixes=version_fix(environment, "torch", ">=2.6"),
        )
