"""fsdp-wrap-class-not-found."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.patterns import Pattern
from gonogo.finding import Certainty, Finding, Text
from gonogo.hazard import Hazard
from gonogo.hazards._cut import cut_in
from gonogo.hazards._said import said, told
from gonogo.hazards.fsdp._asked_for import asked_for_fsdp

_WORDS = ("Could not find the transformer layer class", "Could not find the transformer layer cls")
_CUT = (
    ("accelerate/utils/dataclasses.py", "set_auto_wrap_policy"),
    ("accelerate/accelerator.py", "set_auto_wrap_policy"),
    ("peft/utils/other.py", "fsdp_auto_wrap_policy"),
)
_CLASS = Pattern(r"Could not find the transformer layer (?:class|cls) ['\"]?(\w{1,100})['\"]? in the model")
_GIVEN = Pattern(r"transformer_layer_cls_to_wrap['\"]?\s*[=: ]\s*['\"\[]*([A-Za-z]\w{1,100})")


class FsdpWrapClassNotFound(Hazard):
    """FSDP is to wrap a layer class that the model does not have.

    ## What happens
    "Exception: Could not find the transformer layer class to wrap in the model." (newer: "ValueError: Could not find
    the transformer layer class Llama4VisionEncoderLayer in the model."), while the Trainer or accelerate wraps it.

    ## Why
    `fsdp_transformer_layer_cls_to_wrap` is the name of a Python class, compared letter by letter with the classes of
    the model's modules. It was written for another model, is misspelt (`LLaMADecoderLayer` became
    `LlamaDecoderLayer`), or is missing and the model's own list (`_no_split_modules`) names a class that this variant
    does not have.

    ## Cure
    Print the class: `type(model.model.layers[0]).__name__`, and give it as `fsdp_transformer_layer_cls_to_wrap`; or
    wrap
    by size with `fsdp_auto_wrap_policy: SIZE_BASED_WRAP`. If FSDP was not asked for at all, see
    `stale-accelerate-default-config`.

    ## When it is safe
    Where the class is one of the model's.

    ## Sources
    - https://github.com/tatsu-lab/stanford_alpaca/issues/224: LLaMADecoderLayer was renamed LlamaDecoderLayer
    - https://github.com/tatsu-lab/stanford_alpaca/issues/58: the same, and the class for Bloom
    - https://github.com/huggingface/transformers/issues/37672: the model's own list names a class that it lacks
    """

    page_zh = """FSDP 要包装的层类在模型中不存在。

    ## 现象
    Trainer 或 accelerate 包装模型时出现 “Exception: Could not find the transformer layer class to wrap in the model.”
    （较新版本：“ValueError: Could not find the transformer layer class Llama4VisionEncoderLayer in the model.”）。

    ## 原因
    `fsdp_transformer_layer_cls_to_wrap` 是 Python 类名，与模型各模块的类名逐字比较。它是为别的模型写的，或拼写不对
    （`LLaMADecoderLayer` 已改名为 `LlamaDecoderLayer`），或没有给出，而模型自带的列表（`_no_split_modules`）含有该变
    体没有的类。

    ## 解决办法
    打印类名：`type(model.model.layers[0]).__name__`，写入 `fsdp_transformer_layer_cls_to_wrap`；或用
    `fsdp_auto_wrap_policy: SIZE_BASED_WRAP` 按大小包装。若根本没有要求 FSDP，见 `stale-accelerate-default-config`。

    ## 何时安全
    所给的类确实属于该模型时。

    ## 来源
    - https://github.com/tatsu-lab/stanford_alpaca/issues/224：LLaMADecoderLayer 已改名为 LlamaDecoderLayer
    - https://github.com/tatsu-lab/stanford_alpaca/issues/58：同一问题，以及 Bloom 的类名
    - https://github.com/huggingface/transformers/issues/37672：模型自带的列表含有它没有的类
    """

    name = "fsdp-wrap-class-not-found"
    title = Text(
        en="The layer class that FSDP is to wrap is not in the model",
        zh="FSDP 要包装的层类不在模型中",
    )
    sources = (
        "https://github.com/tatsu-lab/stanford_alpaca/issues/224",
        "https://github.com/tatsu-lab/stanford_alpaca/issues/58",
        "https://github.com/huggingface/transformers/issues/37672",
    )
    log_words = ("Could not find the transformer layer",)

    def in_log(self, log: FailureLog) -> Iterator[Finding]:
        """accelerate's or transformers' refusal; whether FSDP was asked for tells this from a stale default config."""
        evidence = said(log, *_WORDS) or (None if log.errors else cut_in(log, *_CUT, within=2))
        if evidence is None:
            return
        named = _CLASS.search(told(log, evidence)) or _GIVEN.search(f"{log.setup.launch}\n{log.setup.script}")
        # Of a cut traceback the last line is missing; in these functions nothing else is refused.
        asked = asked_for_fsdp(log) if said(log, *_WORDS) else None
        yield self.log_finding(
            evidence,
            Text(
                en="FSDP looks for {layer} among the classes of the model's modules and finds none.",
                zh="FSDP 在模型各模块的类中找不到 {layer}。",
            ).format(layer=named.group(1) if named else Text("the class that it is to wrap", "要包装的类")),
            cure=(
                Text(
                    en="Set fsdp_transformer_layer_cls_to_wrap to the model's own class: "
                    "type(model.model.layers[0]).__name__ prints it",
                    zh="把 fsdp_transformer_layer_cls_to_wrap 设为模型自己的类："
                    "type(model.model.layers[0]).__name__ 会打印它",
                ),
                Text(
                    en="Or use fsdp_auto_wrap_policy: SIZE_BASED_WRAP; if FSDP was not asked for, delete "
                    "~/.cache/huggingface/accelerate/default_config.yaml",
                    zh="或使用 fsdp_auto_wrap_policy: SIZE_BASED_WRAP；若并未要求 FSDP，请删除 "
                    "~/.cache/huggingface/accelerate/default_config.yaml",
                ),
            ),
            certainty={True: Certainty.CERTAIN, None: Certainty.LIKELY, False: Certainty.POSSIBLE}[asked],
            confirm=(
                Text(
                    en="The launch command or accelerate's config file asks for FSDP",
                    zh="启动命令或 accelerate 的配置文件要求使用 FSDP",
                ),
            ),
        )
