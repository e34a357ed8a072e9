"""accelerate-launch-modes-exclude."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.launch.launch import Launch
from gonogo.evidence.run import Run
from gonogo.finding import Certainty, Finding, Severity, Text
from gonogo.hazards.facts.how_it_trains import fix_of
from gonogo.hazards.hazard import Hazard

_MODES = ("cpu", "multi_gpu", "tpu", "use_deepspeed", "use_fsdp")
_ZERO = (
    *("zero_stage", "offload_optimizer_device", "offload_param_device", "zero3_init_flag", "zero3_save_16bit_model"),
    *("deepspeed_config_file", "offload_optimizer_nvme_path", "offload_param_nvme_path"),
)


class AccelerateLaunchModesExclude(Hazard):
    """accelerate launch is given two modes, or ZeRO's options without DeepSpeed.

    ## What happens
    "ValueError: You can only use one of `--cpu`, `--multi_gpu`, `--tpu`, `--use_deepspeed`, `--use_fsdp` at a
    time." Or, with `--zero_stage 3` and no `--use_deepspeed`: plain data parallelism runs, each GPU holds the
    whole model, and memory runs out.

    ## Why
    The options name ways to run, of which a launch has one. ZeRO's options count only where DeepSpeed is on, by
    `--use_deepspeed` or `distributed_type: DEEPSPEED` in the YAML; elsewhere they are dropped without a word, and
    `--multi_gpu` overrides the YAML's DeepSpeed.

    ## Cure
    Keep the one that is meant: `--use_deepspeed` for ZeRO.

    ## When it is safe
    With one mode.

    ## Sources
    - https://huggingface.co/docs/accelerate/package_reference/cli: the modes, and which options each of them takes
    - https://github.com/huggingface/accelerate/blob/main/src/accelerate/commands/launch.py: the refusal
    """

    page_zh = """accelerate launch 同时给了两种模式，或给了 ZeRO 的选项却没有启用 DeepSpeed。

    ## 现象
    “ValueError: You can only use one of `--cpu`, `--multi_gpu`, `--tpu`, `--use_deepspeed`, `--use_fsdp` at a
    time.”；或给了 `--zero_stage 3` 而没有 `--use_deepspeed`：实际运行普通数据并行，每张 GPU 持有完整模型而显存不足。

    ## 原因
    这些选项各是一种运行方式，一次启动只能有一种。ZeRO 的选项只有在启用 DeepSpeed 时才有效（`--use_deepspeed`，或
    YAML 中`distributed_type: DEEPSPEED`），否则被悄悄丢弃；`--multi_gpu` 还会覆盖 YAML 中的 DeepSpeed。

    ## 解决办法
    只保留想要的那一种：用 ZeRO 就写 `--use_deepspeed`。

    ## 何时安全
    只有一种模式时。

    ## 来源
    - https://huggingface.co/docs/accelerate/package_reference/cli：各模式及其选项
    - https://github.com/huggingface/accelerate/blob/main/src/accelerate/commands/launch.py：拒绝之处
    """

    name = "accelerate-launch-modes-exclude"
    title = Text(
        en="accelerate launch is told two ways to run, or ZeRO's options without DeepSpeed",
        zh="accelerate launch 给了两种运行方式，或给了 ZeRO 选项却没有启用 DeepSpeed",
    )
    sources = (
        "https://huggingface.co/docs/accelerate/package_reference/cli",
        "https://github.com/huggingface/accelerate/blob/main/src/accelerate/commands/launch.py",
    )

    def in_launch(self, launch: Launch, run: Run) -> Iterator[Finding]:
        """The launcher's own options."""
        options = launch.launcher_options
        if launch.launcher != "accelerate":
            return
        modes = [name for name in _MODES if name in options]
        if len(modes) > 1:
            places = [options.place_of(name) for name in modes]
            yield self.finding(
                Text(
                    en="accelerate launch gets {modes}, and takes only one of them.",
                    zh="accelerate launch 同时得到 {modes}，而它只接受其中一个。",
                ).format(modes=", ".join(f"--{name}" for name in modes)),
                cure=(
                    Text(
                        "Keep the one that is meant (--use_deepspeed for ZeRO)",
                        "只保留需要的（ZeRO 用 --use_deepspeed）",
                    ),
                ),
                spans=tuple(place.span() for place in places if place is not None),
                fixes=fix_of(
                    Text("Remove --multi_gpu", "删除 --multi_gpu"), lambda: options.removing("multi_gpu"), safe=False
                )
                if modes == ["multi_gpu", "use_deepspeed"] and options.can_edit("multi_gpu")
                else (),
            )
            return
        if "use_deepspeed" in modes or "use_fsdp" in modes or not options.complete:
            return
        yaml = run.accelerate
        if "multi_gpu" not in modes and (yaml.deepspeed_on is not False if yaml is not None else _names_a_file(launch)):
            return
        given = [name for name in _ZERO if name in options]
        if not given:
            return
        places = [options.place_of(name) for name in given]
        yield self.finding(
            Text(
                en="{given} has no effect: nothing turns DeepSpeed on (--use_deepspeed, or distributed_type: "
                "DEEPSPEED).",
                zh="{given} 不起作用：没有启用 DeepSpeed（--use_deepspeed，或 distributed_type: DEEPSPEED）。",
            ).format(given=", ".join(f"--{name}" for name in given)),
            severity=Severity.WARNING,
            certainty=Certainty.LIKELY,
            cure=(Text("Add --use_deepspeed", "加上 --use_deepspeed"),),
            spans=tuple(place.span() for place in places if place is not None),
        )


def _names_a_file(launch: Launch) -> bool:
    """Whether a config that can't be read here may turn DeepSpeed on."""
    return "config_file" in launch.launcher_options
