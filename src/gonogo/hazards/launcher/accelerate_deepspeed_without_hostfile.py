"""accelerate-deepspeed-without-hostfile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gonogo.evidence.field import Field
from gonogo.finding import Certainty, Finding, Fix, Text
from gonogo.hazards.facts.launch_facts import accelerate_setting, accelerate_uses_deepspeed, whole
from gonogo.hazards.hazard import Hazard

if TYPE_CHECKING:
    from gonogo.evidence.launch.launch import Launch
    from gonogo.evidence.run import Run


class AccelerateDeepspeedWithoutHostfile(Hazard):
    """accelerate launch with DeepSpeed on several machines takes pdsh by default, which needs a hostfile.

    ## What happens
    "Unable to find hostfile, will proceed with training with local resources only": each machine trains alone, as if it
    were the only one, and the others report "address already in use" or nothing at all.

    ## Why
    Where deepspeed_multinode_launcher is not set, accelerate calls `deepspeed --launcher pdsh --hostfile ...`, to be
    started on one machine, which reaches the others over ssh. Started on every machine, as main_process_ip and
    machine_rank suggest, each thinks that it is the main one.

    ## Cure
    `--deepspeed_multinode_launcher standard` where every machine runs the command (or in the YAML's deepspeed_config);
    or a hostfile, and the command on one machine.

    ## When it is safe
    With a hostfile and pdsh.

    ## Sources
    - https://github.com/hiyouga/LlamaFactory/issues/176: settled by deepspeed_multinode_launcher standard
    - https://github.com/huggingface/accelerate/issues/2601: several nodes without it
    """

    page_zh = """accelerate launch 多机使用 DeepSpeed 时默认采用 pdsh，而 pdsh 需要 hostfile。

    ## 现象
    “Unable to find hostfile, will proceed with training with local resources only”：每台机器都当自己是唯一一台，单独训
    练；其他机器报 “address already in use”，或没有任何提示。

    ## 原因
    未设置 deepspeed_multinode_launcher 时，accelerate 调用 `deepspeed --launcher pdsh --hostfile ...`，它应只在一台机
    器上启动，再经 ssh 到达其他机器。若像 main_process_ip、machine_rank 所暗示的那样在每台机器上启动，每台都会以为自己
    是主机。

    ## 解决办法
    若每台机器都运行该命令，用 `--deepspeed_multinode_launcher standard`（或写在 YAML 的 deepspeed_config 中）；否则提供
    hostfile，只在一台机器上运行。

    ## 何时安全
    使用 hostfile 与 pdsh 时。

    ## 来源
    - https://github.com/hiyouga/LlamaFactory/issues/176：改用 deepspeed_multinode_launcher standard 后解决
    - https://github.com/huggingface/accelerate/issues/2601：多节点而没有设置它
    """

    name = "accelerate-deepspeed-without-hostfile"
    title = Text(
        "accelerate starts DeepSpeed by pdsh, and no hostfile is named",
        "accelerate 以 pdsh 启动 DeepSpeed，却没有 hostfile",
    )
    sources = (
        "https://github.com/hiyouga/LlamaFactory/issues/176",
        "https://github.com/huggingface/accelerate/issues/2601",
    )

    def in_launch(self, launch: Launch, run: Run) -> Iterator[Finding]:
        """Several machines under DeepSpeed without a multinode launcher and a hostfile."""
        if launch.launcher != "accelerate" or accelerate_uses_deepspeed(launch, run) is not True:
            return
        machines = accelerate_setting(launch, run, "num_machines")
        count = whole(machines)
        if count is None or count < 2 or not launch.launcher_options.complete:
            return
        if not _deepspeed_setting(launch, run, "deepspeed_multinode_launcher").absent:
            return
        if not _deepspeed_setting(launch, run, "deepspeed_hostfile").absent:
            return
        fixes: tuple[Fix, ...] = ()
        if launch.launcher_options.can_edit("num_machines"):
            fixes = (
                self.fix(
                    Text("let every machine start its own processes", "让每台机器启动自己的进程"),
                    launch.launcher_options.adding("--deepspeed_multinode_launcher", "standard"),
                    safe=False,
                ),
            )
        yield self.finding(
            Text(
                en="{count} machines under DeepSpeed without deepspeed_multinode_launcher: accelerate takes pdsh, "
                "finds no "
                "hostfile, and each machine trains alone.",
                zh="{count} 台机器使用 DeepSpeed 但没有设置 deepspeed_multinode_launcher：accelerate 采用 pdsh，"
                "找不到 hostfile，每台机器各自训练。",
            ).format(count=count),
            certainty=Certainty.LIKELY,
            cure=(
                Text(
                    "Set deepspeed_multinode_launcher: standard where every machine runs this command; else name a "
                    "deepspeed_hostfile and run it on one",
                    "若每台机器都运行此命令，设 deepspeed_multinode_launcher: standard；否则给出 deepspeed_hostfile，"
                    "只在一台上运行",
                ),
            ),
            spans=(machines.span(), launch.place.span()),
            fixes=fixes,
            confirm=(Text("/job/hostfile is not there", "不存在 /job/hostfile"),),
        )


def _deepspeed_setting(launch: Launch, run: Run, name: str) -> Field:
    if name in launch.launcher_options:
        return launch.launcher_options.get(name)
    if run.accelerate is not None:
        return run.accelerate.get("deepspeed_config", name)
    return Field.missing() if launch.accelerate_config.absent else Field.not_known()
