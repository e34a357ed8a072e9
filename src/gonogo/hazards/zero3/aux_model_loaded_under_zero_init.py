"""zero3-aux-model-loaded-under-zero-init."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.log.failure_log import FailureLog, Found, LoggedError
from gonogo.evidence.log.role import Role
from gonogo.finding import Certainty, Finding, Text
from gonogo.hazard import Hazard
from gonogo.hazards.zero3._empty_uses import AUXILIARY, EMPTY_WORDS, Use, empty_uses
from gonogo.hazards.zero3._partitioned import ZERO3_WORDS, zero3
from gonogo.hazards.zero3._shape_mismatches import shape_mismatches

_OF_OTHERS = ("OSError", "ImportError", "ModuleNotFoundError", "FileNotFoundError", "KeyError", "OutOfMemoryError")
_LOADING = ("from_pretrained", "partition_parameters.py", "_load_pretrained_model")


class AuxModelLoadedUnderZeroInit(Hazard):
    """A metric's model (BERTScore) is loaded during a ZeRO-3 run and gets empty weights.

    ## What happens
    At the first evaluation `compute_metrics` loads BERTScore, BLEURT or a sentence encoder, which then raises
    "Padding_idx must be within num_embeddings", "'weight' must be 2-D" or size mismatches with torch.Size([0]).

    ## Why
    As long as a ZeRO-3 `TrainingArguments` is alive, every `from_pretrained` in the process builds its model inside
    `deepspeed.zero.Init`, whatever the model is for. The metric's model is never handed to DeepSpeed, so nothing
    gathers its empty parameters.

    ## Cure
    Load the metric before `TrainingArguments` (or `HfDeepSpeedConfig`) is created and keep it; or load it with ZeRO-3
    unset around the call (`transformers.integrations.deepspeed.unset_hf_deepspeed_config()`, then set it again); or
    score the saved predictions in a separate process.

    ## When it is safe
    ZeRO-2 and lower; metrics without a model (ROUGE, BLEU, accuracy).

    ## Sources
    - https://github.com/huggingface/transformers/issues/15244: BERTScore under ZeRO-3, not under ZeRO-2
    - https://github.com/deepspeedai/DeepSpeed/issues/2746: 'weight' must be 2-D came from BERTScore
    - https://github.com/huggingface/transformers/issues/30323: BERTScore loaded in compute_metrics
    - https://github.com/modelscope/ms-swift/issues/4580: a BERT in a reward function
    """

    page_zh = """ZeRO-3 训练中途加载指标用的模型（BERTScore），得到空权重。

    ## 现象
    首次评估时 `compute_metrics` 加载 BERTScore、BLEURT 或句向量模型，随后抛出 “Padding_idx must be within
    num_embeddings”、“'weight' must be 2-D”，或含 torch.Size([0]) 的 size mismatch。

    ## 原因
    只要存在启用 ZeRO-3 的 `TrainingArguments`，进程中的每次 `from_pretrained` 都会在 `deepspeed.zero.Init` 中构建模型，
    无论其用途。指标模型从未交给 DeepSpeed，空参数无人聚合。

    ## 解决办法
    在创建 `TrainingArguments`（或 `HfDeepSpeedConfig`）之前加载指标并保留；或在加载前后取消并恢复 ZeRO-3
    （`transformers.integrations.deepspeed.unset_hf_deepspeed_config()`）；或在单独的进程中对保存的预测打分。

    ## 何时安全
    ZeRO-2 及以下；不含模型的指标（ROUGE、BLEU、准确率）。

    ## 来源
    - https://github.com/huggingface/transformers/issues/15244：ZeRO-3 下的 BERTScore，ZeRO-2 正常
    - https://github.com/deepspeedai/DeepSpeed/issues/2746：'weight' must be 2-D 来自 BERTScore
    - https://github.com/huggingface/transformers/issues/30323：在 compute_metrics 中加载 BERTScore
    - https://github.com/modelscope/ms-swift/issues/4580：奖励函数中的 BERT
    """

    name = "zero3-aux-model-loaded-under-zero-init"
    title = Text(
        en="A metric's model is loaded while ZeRO-3 is on, and gets empty weights",
        zh="指标模型在启用 ZeRO-3 时加载，得到空权重",
    )
    sources = (
        "https://github.com/huggingface/transformers/issues/15244",
        "https://github.com/deepspeedai/DeepSpeed/issues/2746",
        "https://github.com/huggingface/transformers/issues/30323",
        "https://github.com/modelscope/ms-swift/issues/4580",
    )
    log_words = (*ZERO3_WORDS, *EMPTY_WORDS, "compute_metrics", "bert_score", "BERTScore", "bertscore")

    def in_log(self, log: FailureLog) -> Iterator[Finding]:
        """An empty weight, or a failed load, in what computes the metrics."""
        found: list[tuple[LoggedError | Found, Certainty]] = [
            (use.evidence, use.causes[Use.AUXILIARY]) for use in empty_uses(log) if Use.AUXILIARY in use.causes
        ]
        for mismatch in shape_mismatches(log):
            error = mismatch.evidence
            if mismatch.current == "0" and isinstance(error, LoggedError) and error.passes(*AUXILIARY):
                found.append((error, Certainty.CERTAIN))
        if not found and zero3(log):
            found += [
                (error, Certainty.LIKELY)
                for error in log.errors
                if error.role is Role.ROOT
                and error.type not in _OF_OTHERS
                and error.passes(*AUXILIARY)
                and error.passes(*_LOADING)
            ]
        for evidence, certainty in found[:1]:
            yield self.log_finding(
                evidence,
                Text(
                    en="The metric's own model was loaded while ZeRO-3's config was alive, so from_pretrained built "
                    "it under zero.Init with empty parameters, which no engine gathers.",
                    zh="指标自己的模型在 ZeRO-3 配置生效期间加载，from_pretrained 在 zero.Init 下以空参数构建了它，没"
                    "有引擎聚合这些参数。",
                ),
                cure=(
                    Text(
                        "Load the metric's model before TrainingArguments / HfDeepSpeedConfig is created",
                        "在创建 TrainingArguments / HfDeepSpeedConfig 之前加载指标模型",
                    ),
                    Text(
                        "Or unset ZeRO-3 around its loading (unset_hf_deepspeed_config), or score the predictions in "
                        "a separate process",
                        "或在加载前后取消 ZeRO-3（unset_hf_deepspeed_config），或在单独的进程中对预测打分",
                    ),
                ),
                certainty=certainty,
            )
