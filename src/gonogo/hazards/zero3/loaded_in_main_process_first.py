"""zero3-loaded-in-main-process-first."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeGuard

from gonogo.evidence.run import Run
from gonogo.evidence.script.script import Script
from gonogo.finding import Certainty, Finding, Severity, Text
from gonogo.hazards.facts.zero_files import stage_span, told_apart
from gonogo.hazards.hazard import Hazard
from gonogo.hazards.zero3._loading import model_loads
from gonogo.hazards.zero3._rank_zero import on_one_rank


class Zero3LoadedInMainProcessFirst(Hazard):
    """`from_pretrained` of a model inside `main_process_first()`, under ZeRO-3.

    ## What happens
    The run stands still before "Loading checkpoint shards": rank 0 is inside `from_pretrained`, the others wait for
    it to leave the block.

    ## Why
    Under ZeRO-3 `from_pretrained` divides each parameter as it is made and broadcasts what it reads: all ranks must
    be in it together. `main_process_first` (to download once) lets one rank in, and the others wait at a barrier.

    ## Cure
    Take the model's loading out of the block; download beforehand (`hf download`), or put only `snapshot_download`
    into it.

    ## When it is safe
    Tokenizers, processors and data sets in the block; ZeRO-2 and lower.

    ## Sources
    - https://github.com/huggingface/accelerate/issues/3709: from_pretrained in main_process_first hangs under ZeRO-3
    """

    page_zh = """ZeRO-3 下，在 `main_process_first()` 中对模型调用 `from_pretrained`。

    ## 现象
    运行在 “Loading checkpoint shards” 之前停住：rank 0 在 `from_pretrained` 中，其他 rank 等待它离开该块。

    ## 原因
    ZeRO-3 下，`from_pretrained` 在构建时就切分每个参数并广播读到的内容：所有 rank 必须同时进入。
    `main_process_first`（为了只下载一次）只让一个 rank 进入，其他 rank 在 barrier 处等待。

    ## 解决办法
    把模型加载移出该块；事先下载（`hf download`），或只把 `snapshot_download` 放在其中。

    ## 何时安全
    块中只有 tokenizer、processor 与数据集；或 ZeRO-2 及以下。

    ## 来源
    - https://github.com/huggingface/accelerate/issues/3709：ZeRO-3 下 main_process_first 中的 from_pretrained 会挂起
    """

    name = "zero3-loaded-in-main-process-first"
    title = Text(
        en="A model is loaded on one rank before the others, which ZeRO-3 can't do",
        zh="先在一个 rank 上加载模型，而 ZeRO-3 无法这样做",
    )
    sources = ("https://github.com/huggingface/accelerate/issues/3709",)

    def in_script(self, script: Script, run: Run) -> Iterator[Finding]:
        """Models loaded in a block that lets one rank in first."""
        if run.zero_stage != 3 or run.world_size == 1:
            return
        for call in model_loads(script, "from_pretrained", "from_config"):
            block = next((each for each in script.ancestors(call.node) if _lets_one_in(each, call.node)), None)
            test = on_one_rank(script, call.node) if block is None else None
            if (block is None and test is None) or told_apart(script, call.node):
                continue
            where = block.items[0].context_expr if block is not None else test
            yield self.finding(
                Text(
                    en="The model is loaded where only one rank is let in: under ZeRO-3 from_pretrained needs all "
                    "ranks at "
                    "once, and the run hangs here.",
                    zh="模型在只允许一个 rank 进入的地方加载：ZeRO-3 下 from_pretrained 需要所有 rank 同时参与，"
                    "运行会在此"
                    "挂起。",
                ),
                certainty=Certainty.CERTAIN if block is not None else Certainty.LIKELY,
                severity=Severity.ERROR,
                cure=(
                    Text(
                        "Load the model outside of it; let only the download (snapshot_download) stand there",
                        "在其外加载模型；其中只保留下载（snapshot_download）",
                    ),
                ),
                spans=(
                    call.place.span(),
                    script.place(where).span(Text("one rank at a time", "一次只有一个 rank"))
                    if where is not None
                    else None,
                    stage_span(run),
                ),
                confirm=() if block is not None else (Text("ZeRO-3 is known by then", "此时已知使用 ZeRO-3"),),
            )


_FIRST = (
    "main_process_first",
    "local_main_process_first",
    "is_rank_zero_first",
    "rank0_first",
    "torch_distributed_zero_first",
)


def _lets_one_in(block: ast.AST, inside: ast.AST) -> TypeGuard[ast.With]:
    if not isinstance(block, ast.With) or block.lineno == getattr(inside, "lineno", 0):
        return False
    call = block.items[0].context_expr
    func = call.func if isinstance(call, ast.Call) else None
    name = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
    return name in _FIRST
