"""visible-devices-set-in-script."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gonogo.finding import Certainty, Finding, Text
from gonogo.hazards.hazard import Hazard

if TYPE_CHECKING:
    from gonogo.evidence.run import Run
    from gonogo.evidence.script.script import Script


class VisibleDevicesSetInScript(Hazard):
    """The script sets CUDA_VISIBLE_DEVICES to fewer GPUs than the launcher starts processes for.

    ## What happens
    "CUDA error: invalid device ordinal" on all ranks but the first, in `torch.cuda.set_device(local_rank)` or in
    TrainingArguments; or every rank on the same GPU ("Duplicate GPU detected").

    ## Why
    Each process sets the same value before it first uses CUDA: they all see the same few GPUs, and a local rank beyond
    them has none.

    ## Cure
    Remove the line; choose GPUs where the run is launched: `CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 2 ...`,
    `deepspeed --include localhost:0,1`.

    ## When it is safe
    In a script that is started as one process.

    ## Sources
    - https://github.com/YoujiaZhang/Ref-GS/issues/4: GPUs that train.py hides
    - https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#env-vars: what the variable does
    """

    page_zh = """脚本设置的 CUDA_VISIBLE_DEVICES 比启动器启动的进程数还少。

    ## 现象
    除第一个外的所有 rank 都报 “CUDA error: invalid device ordinal”，位置在 `torch.cuda.set_device(local_rank)` 或
    TrainingArguments；或所有 rank 用同一张 GPU（“Duplicate GPU detected”）。

    ## 原因
    每个进程在首次使用 CUDA 之前都设置了相同的值：它们看到相同的几张 GPU，超出范围的 local rank 没有 GPU 可用。

    ## 解决办法
    删除这一行；在启动处选择 GPU：`CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 2 ...`、`deepspeed --include
    localhost:0,1`。

    ## 何时安全
    脚本以单进程启动时。

    ## 来源
    - https://github.com/YoujiaZhang/Ref-GS/issues/4：train.py 隐藏了 GPU
    - https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#env-vars：该变量的作用
    """

    name = "visible-devices-set-in-script"
    title = Text(
        en="The script hides GPUs from the processes that its launcher started",
        zh="脚本隐藏了启动器所启动进程需要的 GPU",
    )
    sources = (
        "https://github.com/YoujiaZhang/Ref-GS/issues/4",
        "https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#env-vars",
    )

    def in_script(self, script: Script, run: Run) -> Iterator[Finding]:
        """A constant that names fewer GPUs than a node has processes, set on the way to training."""
        if b"CUDA_VISIBLE_DEVICES" not in script.source.data or run.launch is None:
            return
        processes = run.launch.processes_per_node.number
        if processes is None or processes < 2:
            return
        for statement in script.nodes(ast.Assign):
            target, value = statement.targets[0], statement.value
            if not isinstance(target, ast.Subscript) or not isinstance(value, ast.Constant):
                continue
            name = script.field(target.slice).value
            if name != "CUDA_VISIBLE_DEVICES" or not ast.unparse(target.value).endswith("environ"):
                continue
            gpus = [one for one in str(value.value).split(",") if one.strip()]
            if len(gpus) >= processes or script.guarded_by(statement):
                continue
            edit = script.removing_statement(statement)
            yield self.finding(
                Text(
                    en="Each of the {processes} processes of a node sees {shown} only, and has its local rank's GPU "
                    "taken "
                    "away.",
                    zh="每个节点的 {processes} 个进程都只能看到 {shown}，local rank 对应的 GPU 因此不可见。",
                ).format(
                    processes=processes,
                    shown=Text(f"GPU {', '.join(gpus)}", f"GPU {', '.join(gpus)}")
                    if gpus
                    else Text("no GPU", "零张 GPU"),
                ),
                certainty=Certainty.CERTAIN if isinstance(script.parent(statement), ast.Module) else Certainty.LIKELY,
                cure=(
                    Text(
                        "Remove it, and choose the GPUs where the run is launched",
                        "删除它，并在启动处选择 GPU",
                    ),
                ),
                spans=(
                    script.place(statement).span(),
                    run.launch.place.span(
                        Text("starts {n} processes a node", "每个节点启动 {n} 个进程").format(n=processes)
                    ),
                ),
                fixes=(self.fix(Text("Leave the choice to the launch", "由启动命令选择"), edit),)
                if edit is not None
                else (),
            )
