"""pydantic-2-beside-older-deepspeed."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.environment.compatibility import known_bad
from gonogo.evidence.environment.environment import Environment
from gonogo.evidence.run import Run
from gonogo.finding import Finding, Text
from gonogo.hazards.facts.installed import fault_finding, known_faults, listing
from gonogo.hazards.hazard import Hazard


class Pydantic2BesideOlderDeepspeed(Hazard):
    """pydantic 2 beside a DeepSpeed whose config is written for pydantic 1.

    ## What happens
    `import deepspeed` ends in pydantic: "PydanticUserError", "`Config` ... has been removed", or "A non-annotated
    attribute was detected" in `deepspeed/runtime/config_utils.py`.

    ## Why
    DeepSpeed up to 0.9.4 uses pydantic 1 and names no upper limit for it; pydantic 2 came in June 2023 and changed
    its API. 0.9.5 and newer pin it or use either.

    ## Cure
    Pin pydantic<2, or take a newer DeepSpeed.

    ## When it is safe
    With DeepSpeed 0.9.5 or newer.

    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/issues/3280: DeepSpeed and pydantic 2
    - https://github.com/OptimalScale/LMFlow/issues/544: the import that fails in a training project
    """

    page_zh = """pydantic 2 与按 pydantic 1 编写配置的 DeepSpeed 装在一起。

    ## 现象
    `import deepspeed` 在 pydantic 中失败：“PydanticUserError”、“`Config` ... has been removed”，或
    `deepspeed/runtime/config_utils.py` 中的 “A non-annotated attribute was detected”。

    ## 原因
    0.9.4 及以前的 DeepSpeed 使用 pydantic 1，却没有写上限；pydantic 2 于 2023 年 6 月发布并改变了接口。0.9.5 及以上
    版本会限定或兼容它。

    ## 解决办法
    固定 pydantic<2，或使用更新的 DeepSpeed。

    ## 何时安全
    DeepSpeed 0.9.5 及以上。

    ## 来源
    - https://github.com/deepspeedai/DeepSpeed/issues/3280：DeepSpeed 与 pydantic 2
    - https://github.com/OptimalScale/LMFlow/issues/544：训练项目中 import 失败
    """

    name = "pydantic-2-beside-older-deepspeed"
    title = Text("This DeepSpeed needs pydantic 1", "该 DeepSpeed 需要 pydantic 1")
    sources = (
        "https://github.com/deepspeedai/DeepSpeed/issues/3280",
        "https://github.com/OptimalScale/LMFlow/issues/544",
    )

    def in_environment(self, environment: Environment, run: Run) -> Iterator[Finding]:
        """DeepSpeed up to 0.9.4 with pydantic 2."""
        rows = tuple(row for row in known_bad("deepspeed") if "pydantic" in row.beside)
        for row in known_faults(environment, rows):
            names = (row.package, *row.beside)
            cause = Text("{told}: {text}.", "{told}：{text}。").format(told=listing(environment, names), text=row.text)
            yield fault_finding(self, row, environment, run, cause)
            return
