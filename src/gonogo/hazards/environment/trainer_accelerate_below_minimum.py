"""trainer-accelerate-below-minimum."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.environment.environment import Environment
from gonogo.evidence.run import Run
from gonogo.finding import Finding, Text
from gonogo.hazards.environment._pairs import refused_by_transformers
from gonogo.hazards.hazard import Hazard


class TrainerAccelerateBelowMinimum(Hazard):
    """transformers refuses an accelerate that is older than its Trainer needs.

    ## What happens
    "ImportError: Using the `Trainer` with `PyTorch` requires `accelerate>=0.26.0`" where TrainingArguments are made,
    or, at the import of transformers, "accelerate>=0.26.0 is required for a normal functioning of this module, but
    found accelerate==0.21.0".

    ## Why
    accelerate is no hard dependency of transformers: pip installs the pair without a word. transformers holds a
    lowest version of its own, 0.20.3 in 4.31, 0.21.0 in 4.36, 0.26.0 in 4.45, 1.1.0 in 5.0.

    ## Cure
    Raise accelerate to that version, or install transformers[torch], which does.

    ## When it is safe
    Where accelerate is at least what `ACCELERATE_MIN_VERSION` in transformers/utils/import_utils.py says.

    ## Sources
    - https://github.com/huggingface/course/issues/644: the ImportError in a fine-tuning chapter
    - https://github.com/huggingface/audio-transformers-course/issues/158: the same with 0.21.0 as the lowest version
    - https://github.com/huggingface/transformers/blob/main/src/transformers/dependency_versions_table.py: the
      versions that transformers requires
    """

    page_zh = """transformers 拒绝使用比其 Trainer 要求更旧的 accelerate。

    ## 现象
    建立 TrainingArguments 时报 “ImportError: Using the `Trainer` with `PyTorch` requires `accelerate>=0.26.0`”，或
    在 import transformers 时报 “accelerate>=0.26.0 is required for a normal functioning of this module, but found
    accelerate==0.21.0”。

    ## 原因
    accelerate 不是 transformers 的硬依赖，pip 会不加提示地装上这对版本。transformers 自带最低版本要求：4.31 为
    0.20.3，4.36 为 0.21.0，4.45 为 0.26.0，5.0 为 1.1.0。

    ## 解决办法
    把 accelerate 升级到该版本，或安装会自动满足要求的 transformers[torch]。

    ## 何时安全
    accelerate 不低于 transformers/utils/import_utils.py 中的 `ACCELERATE_MIN_VERSION` 时。

    ## 来源
    - https://github.com/huggingface/course/issues/644：微调教程中的该 ImportError
    - https://github.com/huggingface/audio-transformers-course/issues/158：最低版本为 0.21.0 时的同一报错
    - https://github.com/huggingface/transformers/blob/main/src/transformers/dependency_versions_table.py：
      transformers 要求的版本
    """

    name = "trainer-accelerate-below-minimum"
    title = Text("accelerate is older than this transformers takes", "accelerate 比该版本 transformers 的要求旧")
    sources = (
        "https://github.com/huggingface/course/issues/644",
        "https://github.com/huggingface/audio-transformers-course/issues/158",
        "https://github.com/huggingface/transformers/blob/main/src/transformers/dependency_versions_table.py",
    )

    def in_environment(self, environment: Environment, run: Run) -> Iterator[Finding]:
        """accelerate below the lowest version that the told transformers takes."""
        effect = Text(
            "the import of transformers, or TrainingArguments, ends with an ImportError",
            "import transformers 或建立 TrainingArguments 时以 ImportError 结束",
        )
        yield from refused_by_transformers(self, environment, run, "accelerate", effect)
