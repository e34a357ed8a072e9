"""gpu-oom-model-states."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.rehearsal import RehearsalRecord
from gonogo.finding import Finding, Text
from gonogo.hazard import Hazard
from gonogo.hazards.memory import _gpu_shortage as gpu


class GpuOomModelStates(Hazard):
    """Parameters, gradients and optimizer states do not fit the GPU.

    ## What happens
    "CUDA out of memory" while the model is loaded, in `deepspeed.initialize`, or in the first optimizer step. Shorter
    sequences and smaller batches do not help.

    ## Why
    Adam in mixed precision keeps 16 bytes a trainable parameter: 2 for the bf16 weight, 2 for its gradient, 12 for the
    fp32 weight and two moments. ZeRO-1 divides the 12 over the ranks, ZeRO-2 the gradient too, ZeRO-3 everything; with
    few ranks that is not enough. Buckets for communication and gathered parameters come on top.

    ## Cure
    In the finding's order, which puts what is enough first: a higher ZeRO stage, optimizer offload (costs host memory
    and speed), parameter offload, more GPUs, or LoRA, which trains under 1 % of the parameters.

    ## When it is safe
    When the peak stays below the GPU's memory less what the context and libraries take; the finding prints both.

    ## Sources
    - https://deepspeed.readthedocs.io/en/stable/zero3.html: what each stage divides, and offloading
    - https://arxiv.org/abs/1910.02054: ZeRO, the 16 bytes a parameter (section 3.1)
    - https://github.com/deepspeedai/DeepSpeed/issues/2302: model states against activations, by a maintainer
    - https://github.com/deepspeedai/DeepSpeed/issues/3132: a 6B model on 8 x 24 GB, in the optimizer's set-up
    """

    page_zh = """参数、梯度与优化器状态放不进 GPU。

    ## 现象
    在加载模型、`deepspeed.initialize` 或第一次优化器更新时出现 “CUDA out of memory”。缩短序列或减小 batch 都没有用。

    ## 原因
    混合精度 Adam 的每个可训练参数占 16 字节：bf16 权重 2、梯度 2、fp32 权重与两个动量 12。ZeRO-1 把这 12 字节切分到各
    rank，ZeRO-2 还切分梯度，ZeRO-3 切分全部；rank 太少时仍不够。通信桶与聚合的参数另计。

    ## 解决办法
    按结果给出的顺序（足够的排在前面）：提高 ZeRO 阶段、卸载优化器（占主机内存并降速）、卸载参数、增加 GPU，或使用只训练
    不到 1 % 参数的 LoRA。

    ## 何时安全
    峰值低于 GPU 显存减去上下文与库的占用时；结果中两者都会打印。

    ## 来源
    - https://deepspeed.readthedocs.io/en/stable/zero3.html：各阶段切分什么，以及卸载
    - https://arxiv.org/abs/1910.02054：ZeRO，每个参数 16 字节（第 3.1 节）
    - https://github.com/deepspeedai/DeepSpeed/issues/2302：维护者对模型状态与激活的区分
    - https://github.com/deepspeedai/DeepSpeed/issues/3132：8 x 24 GB 上的 6B 模型，在建立优化器时
    """

    name = "gpu-oom-model-states"
    explains_failure = False
    title = Text(en="Model states overfill the GPU", zh="模型状态超出显存")
    sources = (
        "https://deepspeed.readthedocs.io/en/stable/zero3.html",
        "https://arxiv.org/abs/1910.02054",
        "https://github.com/deepspeedai/DeepSpeed/issues/2302",
        "https://github.com/deepspeedai/DeepSpeed/issues/3132",
    )

    def in_rehearsal(self, record: RehearsalRecord) -> Iterator[Finding]:
        """A shortage in which model states outweigh activations, or are too much alone."""
        for short in gpu.gpu_shortages(record, of_model_states=True):
            remedies = [*gpu.fragmentation_remedies(short), *gpu.state_remedies(short)]
            yield self.finding(
                gpu.cause(short),
                title=gpu.title(short, self.title),
                cure=gpu.in_order(short, remedies),
                spans=gpu.spans(short),
                ranks=short.ranks,
                module=short.shortage.module,
            )
