"""torch-load-refused-below-2-6."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.environment.environment import Environment
from gonogo.evidence.run import Run
from gonogo.finding import Certainty, Finding, Text
from gonogo.hazards.facts.how_it_trains import with_trainer
from gonogo.hazards.facts.installed import span_of, together, told, version_fix
from gonogo.hazards.hazard import Hazard


class TorchLoadRefusedBelow26(Hazard):
    """transformers 4.52 and newer refuse to resume with PyTorch below 2.6.

    ## What happens
    With resume_from_checkpoint: "ValueError: Due to a serious vulnerability issue in `torch.load`, even with
    `weights_only=True`, we now require users to upgrade torch to at least v2.6 in order to use the function." The
    first part of the run worked.

    ## Why
    CVE-2025-32434: torch.load below 2.6 can run code even with weights_only. transformers checks the version before
    it loads optimizer.pt and scheduler.pt, which have no safetensors form. Weights in safetensors are not affected.

    ## Cure
    PyTorch 2.6 or newer; or transformers 4.51, with checkpoints of your own making only.

    ## When it is safe
    Where nothing is resumed, or where no checkpoint is there yet.

    ## Sources
    - https://github.com/huggingface/transformers/pull/37785: the check, in every place of the Trainer that loads
    - https://github.com/autogluon/autogluon/pull/5270: the ValueError in a project that trains
    """

    page_zh = """transformers 4.52 及以上在 PyTorch 低于 2.6 时拒绝续训。

    ## 现象
    设了 resume_from_checkpoint 时：“ValueError: Due to a serious vulnerability issue in `torch.load`, even with
    `weights_only=True`, we now require users to upgrade torch to at least v2.6 in order to use the function.”。而训
    练的前半段是正常的。

    ## 原因
    CVE-2025-32434：低于 2.6 的 torch.load 即使设了 weights_only 也可能执行代码。transformers 在加载 optimizer.pt 与
    scheduler.pt 之前检查版本，而它们没有 safetensors 形式。safetensors 权重不受影响。

    ## 解决办法
    使用 PyTorch 2.6 及以上；或 transformers 4.51，且只加载自己生成的检查点。

    ## 何时安全
    不续训，或还没有检查点时。

    ## 来源
    - https://github.com/huggingface/transformers/pull/37785：该检查，遍及 Trainer 的加载之处
    - https://github.com/autogluon/autogluon/pull/5270：训练项目中的该 ValueError
    """

    name = "torch-load-refused-below-2-6"
    title = Text("transformers refuses to resume with this PyTorch", "transformers 在该 PyTorch 下拒绝续训")
    sources = (
        "https://github.com/huggingface/transformers/pull/37785",
        "https://github.com/autogluon/autogluon/pull/5270",
    )

    def in_environment(self, environment: Environment, run: Run) -> Iterator[Finding]:
        """resume_from_checkpoint with such a pair."""
        resumed = run.arguments.get("resume_from_checkpoint")
        if not resumed.known or resumed.truth is False or str(resumed.value).lower() in ("none", "", "null"):
            return
        if not together(environment, "torch", "transformers") or not environment.within("torch", "<2.6"):
            return
        if not environment.within("transformers", ">=4.52") or not with_trainer(run):
            return
        yield self.finding(
            Text(
                "{transformers} refuses to load a checkpoint's optimizer and scheduler with {torch}: it asks for 2.6.",
                "{transformers} 在 {torch} 下拒绝加载检查点的优化器与调度器：要求 2.6。",
            ).format(transformers=told(environment, "transformers"), torch=told(environment, "torch")),
            certainty=Certainty.LIKELY,
            cure=(
                Text("Install torch 2.6 or newer", "安装 torch 2.6 及以上"),
                Text("Or transformers 4.51, for checkpoints of your own", "或对自己的检查点使用 transformers 4.51"),
            ),
            spans=(resumed.span(), span_of(environment, "torch"), span_of(environment, "transformers")),
            fixes=version_fix(environment, "torch", ">=2.6"),
            confirm=(Text("There is a checkpoint to resume from", "存在可续训的检查点"),),
        )
