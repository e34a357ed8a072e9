"""What ``accelerate launch`` takes from the machine where the command names no configuration."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.launch.launch import Launch
from gonogo.evidence.run import Run
from gonogo.finding import Certainty, Finding, Severity, Text
from gonogo.hazards.hazard import Hazard

_MODES = ("use_deepspeed", "use_fsdp", "multi_gpu", "cpu", "tpu", "use_megatron_lm")
_CURE = (
    Text(
        "Name the configuration that is meant: accelerate launch --config_file my_config.yaml ...",
        "明确指定所用配置：accelerate launch --config_file my_config.yaml ...",
    ),
    Text(
        "Or look at it and delete it on every node: ~/.cache/huggingface/accelerate/default_config.yaml",
        "或在每个节点上查看并删除：~/.cache/huggingface/accelerate/default_config.yaml",
    ),
)


def default_config_in_launch(hazard: Hazard, launch: Launch, run: Run) -> Iterator[Finding]:
    """A DeepSpeed run whose mode the machine's default config decides, certainly or maybe."""
    if launch.launcher != "accelerate" or "config_file" in launch.launcher_options:
        return
    if not launch.launcher_options.complete or any(name in launch.launcher_options for name in _MODES):
        return
    program = next((name for name in ("deepspeed", "deepspeed_config") if name in launch.options), None)
    if program is None:
        return
    asked = launch.options.get(program)
    kind = run.accelerate.distributed_type.string if run.accelerate is not None else None
    deepspeed = Text("the program is given DeepSpeed here", "此处给程序指定了 DeepSpeed")
    if kind is not None and kind.upper() in ("FSDP", "MEGATRON_LM"):
        yield hazard.finding(
            Text(
                en="The command names no --config_file, so accelerate reads {path}, which says distributed_type: "
                "{kind}; the program is told to use DeepSpeed.",
                zh="命令没有给出 --config_file，accelerate 会读取 {path}，其中 distributed_type: {kind}；而程序被要求使"
                "用 DeepSpeed。",
            ).format(path=launch.accelerate_config.get("default_config.yaml"), kind=kind),
            certainty=Certainty.LIKELY,
            cure=_CURE,
            spans=(launch.place.span(), asked.span(deepspeed)),
            confirm=(Text("That file is meant for another run", "该文件是为别的训练写的"),),
        )
    elif kind is None and "num_processes" not in launch.launcher_options:
        yield hazard.finding(
            Text(
                en="The command names neither --config_file nor --num_processes: how many processes run, and whether "
                "accelerate turns FSDP or DeepSpeed on, comes from default_config.yaml of whichever machine runs it.",
                zh="命令既没有 --config_file 也没有 --num_processes：进程数以及 accelerate 是否启用 FSDP 或 DeepSpeed，"
                "都取决于运行机器上的 default_config.yaml。",
            ),
            severity=Severity.NOTE,
            certainty=Certainty.POSSIBLE,
            cure=_CURE,
            spans=(launch.place.span(), asked.span(deepspeed)),
        )
