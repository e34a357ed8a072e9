"""checkpoint-weights-only-unpickling."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.patterns import Pattern
from gonogo.finding import Certainty, Finding, Text
from gonogo.hazard import Hazard
from gonogo.hazards._cut import cut_in
from gonogo.hazards._log_context import outside_training
from gonogo.hazards._said import one_line, said, told

_REFUSED = Pattern(
    r"(?:GLOBAL|[Uu]nsupported (?:global|class):?) `?(?:GLOBAL )?([A-Za-z_][\w.]*\.[\w.]+)"
    r"|[Uu]nsupported (?:global|class|reduce)|not an allowed global"
    r"|safe_globals|unsupported persistent id|Trying to instantiate .{1,200} blocked"
)
_PROSE = Pattern(
    r"(?i)(?:fail|error|cannot|can.t|unable|refus|broken|报错|失败|无法|不能|出错).{0,100}\bweights_only ?= ?True"
    r"|\bweights_only ?= ?True.{0,100}(?:fail|error|cannot|can.t|unable|refus|breaks|报错|失败|无法|不能|出错)"
    r"|weights[-_ ]only.{0,60}(?:resum|rng_state|optimizer state)|(?:resum|rng[ _]state).{0,100}weights[-_ ]only"
    r"|(?:checkpoint|resum)\w*.{0,60}\b(?:fail|error|cannot|broken)\w*.{0,40}\b(?:py)?torch ?(?:>=?|v|since)? ?2\.[6-9]"
    r"|safe_globals.{0,60}(?:resum|load|checkpoint)|(?:resum|load\w*|checkpoint).{0,60}safe_globals"
)
_BROKEN_FILE = Pattern(r"[Uu]nsupported operand|invalid load key|pickle data was truncated|Ran out of input")
_FAILED = "Weights only load failed"


class WeightsOnlyUnpickling(Hazard):
    """PyTorch 2.6 and later read a checkpoint as weights only, and it holds more than weights.

    ## What happens
    Resuming ends with "_pickle.UnpicklingError: Weights only load failed", then "Unsupported global: GLOBAL … was not
    an allowed global by default". It is the random state (`numpy…_reconstruct`), the optimizer's or DeepSpeed's state
    (`LossScaler`, `ZeroStageEnum`), or pickled arguments (`argparse.Namespace`).

    ## Why
    Since PyTorch 2.6 `torch.load` has `weights_only=True` as its default, and unpickles only tensors and plain types.
    Code written before loads its own training state without saying otherwise.

    ## Cure
    Upgrade the library whose frame calls `torch.load` (transformers, accelerate, DeepSpeed, the training framework):
    their present versions say what they need. Otherwise allow the type that the message names, before the load:
    `torch.serialization.add_safe_globals([…])`. For a checkpoint that you wrote yourself,
    `TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1` brings the old default back where the call doesn't set `weights_only`: it may
    run any code that the file holds.

    ## When it is safe
    Weights alone (`.safetensors`, a plain state dict) load under either default. Before PyTorch 2.6 only an explicit
    `weights_only=True` refuses.

    ## Sources
    - https://github.com/huggingface/transformers/issues/34631: resuming under PyTorch 2.6 needs safe globals
    - https://github.com/modelscope/ms-swift/issues/5808: DeepSpeed's LossScaler refused on resuming
    - https://github.com/huggingface/trl/issues/3247: resuming a GRPO run fails so
    - https://pytorch.org/docs/stable/generated/torch.load.html: what weights_only allows
    """

    page_zh = """PyTorch 2.6 起默认只按权重读取检查点，而该检查点不只有权重。

    ## 现象
    恢复训练时以 “_pickle.UnpicklingError: Weights only load failed” 结束，随后是 “Unsupported global: GLOBAL … was not
    an allowed global by default”。涉及的是随机状态（`numpy…_reconstruct`）、优化器或 DeepSpeed 的状态（`LossScaler`、
    `ZeroStageEnum`），或被 pickle 的参数（`argparse.Namespace`）。

    ## 原因
    自 PyTorch 2.6 起 `torch.load` 默认 `weights_only=True`，只反序列化张量与简单类型。此前编写的代码在读取自己的训练
    状态时没有另作说明。

    ## 解决办法
    升级调用 `torch.load` 的库（transformers、accelerate、DeepSpeed 或训练框架），它们的新版本已作处理。否则在读取之前
    允许报错所指的类型：`torch.serialization.add_safe_globals([…])`。对自己写出的检查点，可设置
    `TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1` 恢复旧的默认行为（调用处未写明 `weights_only` 时有效）：文件中的任意代码都
    可能被执行。

    ## 何时安全
    仅含权重的文件（`.safetensors`、普通 state dict）在两种默认下都能读取。PyTorch 2.6 之前只有显式 `weights_only=True`
    才会拒绝。

    ## 来源
    - https://github.com/huggingface/transformers/issues/34631：PyTorch 2.6 下恢复训练需要 safe globals
    - https://github.com/modelscope/ms-swift/issues/5808：恢复时 DeepSpeed 的 LossScaler 被拒绝
    - https://github.com/huggingface/trl/issues/3247：恢复 GRPO 训练时同样失败
    - https://pytorch.org/docs/stable/generated/torch.load.html：weights_only 允许什么
    """

    name = "checkpoint-weights-only-unpickling"
    title = Text(
        en="torch.load refuses a checkpoint that holds more than weights",
        zh="torch.load 拒绝读取不只含权重的检查点",
    )
    log_words = (
        _FAILED,
        "WeightsUnpickler",
        "safe_globals",
        "weights_only",
        "weights-only",
        "_get_wo_message",
    )
    sources = (
        "https://github.com/huggingface/transformers/issues/34631",
        "https://github.com/modelscope/ms-swift/issues/5808",
        "https://github.com/huggingface/trl/issues/3247",
        "https://pytorch.org/docs/stable/generated/torch.load.html",
    )

    def in_log(self, log: FailureLog) -> Iterator[Finding]:
        """The unpickler's refusal, with the type that it names."""
        evidence = said(log, _FAILED, "WeightsUnpickler error", "was not an allowed global by default")
        evidence = evidence or said(log, "types accepted by default with weights_only")
        if outside_training(log):
            return
        told_only = False
        if evidence is None:
            evidence = cut_in(log, ("torch/serialization", "UnpicklingError(_get_wo_message"))
            prose = None if log.errors or evidence else log.find(_PROSE)
            if evidence is None and prose is not None:
                evidence, told_only = prose.line, True
        if evidence is None:
            return
        message = told(log, evidence)
        everything = one_line(
            " ".join(line.text for line in log.lines if "GLOBAL" in line.text or "class" in line.text)
        )
        refused = _REFUSED.search(message) or _REFUSED.search(everything)
        if told_only:
            refused = None
        elif refused is None and _BROKEN_FILE.search(message):
            return  # no pickle at all: a page of HTML, a pointer of Git LFS, a file cut short
        named = refused.group(1) if refused else None
        names = str(named).rstrip(".") if named else None
        yield self.log_finding(
            evidence,
            Text(
                "The checkpoint holds {what}, and torch.load reads weights only: the default since PyTorch 2.6.",
                "检查点中含有{what}，而 torch.load 只读取权重（PyTorch 2.6 起的默认行为）。",
            ).format(what=Text(names, f" {names}") if names else Text("more than weights", "权重以外的对象")),
            certainty=Certainty.CERTAIN if refused else Certainty.LIKELY,
            cure=(
                Text(
                    "Upgrade the library whose frame calls torch.load (transformers, accelerate, deepspeed …)",
                    "升级调用 torch.load 的库（transformers、accelerate、deepspeed 或训练框架）",
                ),
                Text(
                    f"Allow the type before the load: torch.serialization.add_safe_globals([{names or '…'}])",
                    f"在读取之前允许该类型：torch.serialization.add_safe_globals([{names or '…'}])",
                ),
                Text(
                    "For a checkpoint that you wrote yourself: TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1 (it may run any code "
                    "that the file holds)",
                    "对自己写出的检查点：TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1（文件中的任意代码都可能被执行）",
                ),
            ),
            confirm=(
                Text(
                    "The lines after it name a type that is not allowed",
                    "其后的行会指出不被允许的类型",
                ),
            ),
        )
