"""safetensors-shared-tensors."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.log.failure_log import FailureLog, Found, LoggedError
from gonogo.evidence.log.line import LogLine
from gonogo.evidence.patterns import Pattern, compiled_when_used
from gonogo.finding import Certainty, Finding, Text
from gonogo.hazard import Hazard
from gonogo.hazards._cut import cut_in
from gonogo.hazards._log_context import outside_training
from gonogo.hazards._rehearsed import few
from gonogo.hazards._said import said, told

_WORDS = ("Some tensors share memory", "trying to be saved contained shared tensors")
# A reporter's own words.
_TOLD = Pattern(
    r"(?i)\btensors?\b.{0,20}\b(?:sharing|shares?|shared) (?:the same )?memory\b"
    r"|\b(?:safetensors|save_pretrained|sav(?:e|es|ing))\b.{0,80}\bshared tensors\b|\bshared tensors\b.{0,40}\bsave"
    r"|共享(?:内存|张量).{0,40}safetensors"
)
_REFUSES = (("safetensors/torch.py", "raise RuntimeError("), ("modeling_utils.py", "save_pretrained"))
_NAMES = compiled_when_used(r"'([^']{1,200})'")


class SafetensorsSharedTensors(Hazard):
    """Tensors that share memory cannot be saved as safetensors.

    ## What happens
    The first checkpoint, or the final save, ends with "Some tensors share memory, this will lead to duplicate memory on
    disk and potential differences when loading them again", or "The weights trying to be saved contained shared
    tensors … that are mismatching the transformers base configuration".

    ## Why
    safetensors writes each tensor once, and refuses two names for one memory: an output layer tied to the embedding
    (`lm_head.weight`, `embed_tokens.weight`), a model wrapped in another (trl's value head, a reward model) whose class
    doesn't declare the tie, or a module that is registered twice. Under ZeRO-3 a state dict of empty placeholders looks
    the same: then nearly all names are listed.

    ## Cure
    Save in the old format: `save_safetensors=False` (Trainer), `safe_serialization=False` (`save_pretrained`). Or
    `safetensors.torch.save_model`, which knows ties. Or untie: `clone()` one of the two. In a model's own class: name
    the tie in `_tied_weights_keys`. Under ZeRO-3 save through the engine (`save_16bit_model`) or Trainer.

    ## When it is safe
    Where the model's class declares its ties, transformers leaves one of the names out by itself.

    ## Sources
    - https://huggingface.co/docs/safetensors/torch_shared_tensors: why shared tensors are refused, and save_model
    - https://github.com/CarperAI/trlx/issues/591: a model with a value head, saved by Accelerate
    - https://github.com/hiyouga/LlamaFactory/issues/3400: a reward model's wrapper under ZeRO-3
    - https://github.com/safetensors/safetensors/issues/304: all weights listed, after DeepSpeed
    """

    page_zh = """共享内存的张量无法保存为 safetensors。

    ## 现象
    第一次保存检查点或最终保存时以 “Some tensors share memory, this will lead to duplicate memory on disk and
    potential differences when loading them again” 或 “The weights trying to be saved contained shared tensors … that
    are mismatching the transformers base configuration” 结束。

    ## 原因
    safetensors 每个张量只写一次，不接受同一内存的两个名字：输出层与嵌入绑定（`lm_head.weight` 与
    `embed_tokens.weight`）、外层包装（trl 的 value head、奖励模型）没有声明这种绑定，或同一模块注册了两次。ZeRO-3 下
    由空占位张量组成的 state dict 看起来也一样：此时几乎所有名字都会列出。

    ## 解决办法
    用旧格式保存：`save_safetensors=False`（Trainer）、`safe_serialization=False`（`save_pretrained`）；或使用能处理绑
    定的`safetensors.torch.save_model`；或解除共享：对其中一个 `clone()`；自己的模型类可在 `_tied_weights_keys` 中声明
    绑定。ZeRO-3 下通过引擎（`save_16bit_model`）或 Trainer 保存。

    ## 何时安全
    模型类声明了绑定时，transformers 会自动省去其中一个名字。

    ## 来源
    - https://huggingface.co/docs/safetensors/torch_shared_tensors：为何拒绝共享张量，以及 save_model
    - https://github.com/CarperAI/trlx/issues/591：带 value head 的模型由 Accelerate 保存
    - https://github.com/hiyouga/LlamaFactory/issues/3400：ZeRO-3 下奖励模型的包装
    - https://github.com/safetensors/safetensors/issues/304：DeepSpeed 之后列出了所有权重
    """

    name = "safetensors-shared-tensors"
    title = Text(en="safetensors refuses tensors that share memory", zh="safetensors 拒绝保存共享内存的张量")
    log_words = ("share memory", "shared tensors", "sharing memory", "共享")
    sources = (
        "https://huggingface.co/docs/safetensors/torch_shared_tensors",
        "https://github.com/CarperAI/trlx/issues/591",
        "https://github.com/hiyouga/LlamaFactory/issues/3400",
        "https://github.com/safetensors/safetensors/issues/304",
    )

    def in_log(self, log: FailureLog) -> Iterator[Finding]:
        """The refusal, with the names that share memory."""
        quoted = said(log, *_WORDS)
        evidence: LoggedError | LogLine | Found | None = quoted
        names = _NAMES.findall(told(log, quoted).partition("[")[2]) if quoted is not None else []
        certainty = Certainty.CERTAIN
        if evidence is None and not log.errors:
            evidence = cut_in(log, *_REFUSES, within=1) or log.find(_TOLD)
            certainty = Certainty.LIKELY
        if evidence is None or outside_training(log):
            return
        cures = [
            Text(
                "Save in the old format: save_safetensors=False (Trainer) or safe_serialization=False "
                "(save_pretrained, Accelerate)",
                "用旧格式保存：save_safetensors=False（Trainer）或 safe_serialization=False"
                "（save_pretrained、Accelerate）",
            ),
            Text(
                "Or safetensors.torch.save_model(model, path) instead of save_file, or untie one of them (clone())",
                "或用 safetensors.torch.save_model(model, path) 代替 save_file，或对其中一个 clone()",
            ),
        ]
        if len(names) > 8:
            cures.insert(
                0,
                Text(
                    "So many names are ZeRO-3's or FSDP's empty placeholders: save through the engine "
                    "(stage3_gather_16bit_weights_on_model_save, save_16bit_model) or Trainer.save_model",
                    "名字如此之多，多半是 ZeRO-3 或 FSDP 的空占位张量：请通过引擎保存"
                    "（stage3_gather_16bit_weights_on_model_save、save_16bit_model）或 Trainer.save_model",
                ),
            )
        yield self.log_finding(
            evidence,
            Text(
                "{names} share memory, and safetensors writes no memory under two names.",
                "{names} 共享内存，而 safetensors 不会把同一块内存写成两个名字。",
            ).format(names=few(names, 4) if names else Text("Some tensors", "有些张量")),
            certainty=certainty,
            cure=tuple(cures),
            parameter=names[0] if names else None,
        )
