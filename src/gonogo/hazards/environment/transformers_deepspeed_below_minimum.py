"""transformers-deepspeed-below-minimum."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.environment.environment import Environment
from gonogo.evidence.run import Run
from gonogo.finding import Finding, Text
from gonogo.hazards.environment._pairs import refused_by_transformers
from gonogo.hazards.hazard import Hazard


class TransformersDeepspeedBelowMinimum(Hazard):
    """transformers refuses a DeepSpeed that is older than its integration needs.

    ## What happens
    TrainingArguments with `deepspeed` end with "ImportError: deepspeed>=0.9.3 is required for a normal functioning of
    this module, but found deepspeed==0.8.3".

    ## Why
    transformers looks at DeepSpeed's version when it first reads a DeepSpeed config. Since 4.31 it asks for 0.9.3. An
    upgrade of transformers alone parts the pair.

    ## Cure
    Raise DeepSpeed, with a PyTorch of its time, or pin the older transformers.

    ## When it is safe
    Where DeepSpeed is not used through transformers.

    ## Sources
    - https://github.com/databrickslabs/dolly/issues/209: deepspeed 0.8.3 refused, with the traceback
    - https://github.com/huggingface/transformers/blob/main/src/transformers/dependency_versions_table.py: the
      versions that transformers requires
    """

    page_zh = """transformers 拒绝使用比其集成要求更旧的 DeepSpeed。

    ## 现象
    带 `deepspeed` 的 TrainingArguments 以 “ImportError: deepspeed>=0.9.3 is required for a normal functioning of
    this module, but found deepspeed==0.8.3” 结束。

    ## 原因
    transformers 首次读取 DeepSpeed 配置时会检查其版本，自 4.31 起要求 0.9.3。只升级 transformers 就会破坏这对版本。

    ## 解决办法
    升级 DeepSpeed（配同期的 PyTorch），或固定较旧的 transformers。

    ## 何时安全
    不通过 transformers 使用 DeepSpeed 时。

    ## 来源
    - https://github.com/databrickslabs/dolly/issues/209：deepspeed 0.8.3 被拒绝，含调用栈
    - https://github.com/huggingface/transformers/blob/main/src/transformers/dependency_versions_table.py：
      transformers 要求的版本
    """

    name = "transformers-deepspeed-below-minimum"
    title = Text("DeepSpeed is older than this transformers takes", "DeepSpeed 比该版本 transformers 的要求旧")
    sources = (
        "https://github.com/databrickslabs/dolly/issues/209",
        "https://github.com/huggingface/transformers/blob/main/src/transformers/dependency_versions_table.py",
    )

    def in_environment(self, environment: Environment, run: Run) -> Iterator[Finding]:
        """DeepSpeed below the lowest version that the told transformers takes."""
        if run.deepspeed_on is False:
            return
        effect = Text(
            "TrainingArguments that name a DeepSpeed config end with an ImportError",
            "指定了 DeepSpeed 配置的 TrainingArguments 以 ImportError 结束",
        )
        yield from refused_by_transformers(self, environment, run, "deepspeed", effect)
