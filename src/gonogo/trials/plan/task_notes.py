"""What a report says of a task: why a strategy generates and refers as it does, and what was only reckoned."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.finding import Skipped, Text
from gonogo.trials.plan.choice import Choice
from gonogo.trials.plan.request import PlanRequest

_GIB = 1 << 30
_REFERENCES = {
    "model": Text(
        "A second, frozen copy of the model computes the reference log-probabilities.",
        "参考模型是另一份冻结的模型，由它给出参考对数概率。",
    ),
    "adapter": Text(
        "The reference is the same model without its adapters: it takes no extra memory.",
        "参考模型就是去掉 adapter 的同一个模型：不额外占用显存。",
    ),
    "precomputed": Text(
        "The reference log-probabilities are computed once before training: no second model is held during "
        "training, and this pass over the data is not included in the speed.",
        "参考对数概率在训练前一次算好：训练时不保留第二个模型；这次遍历数据的时间不计入速度。",
    ),
}
_COLOCATED = Text(
    "vLLM runs in the trainer's processes with {share:.0%} of each GPU ({size:.0f} GiB) and tensor parallel size {tp}.",
    "vLLM 运行在训练进程中，占每张卡的 {share:.0%}（{size:.0f} GiB），张量并行数为 {tp}。",
)
_SLEEPS = Text(
    "It releases its weights and cache while the trainer works (sleep mode).",
    "训练器工作时，它释放权重和缓存（sleep 模式）。",
)
_AWAKE = Text("There is enough memory to keep it loaded while the trainer works.", "训练器工作时它也无需让出显存。")
_SERVED = Text(
    "vLLM runs as a server on {gpus} GPU(s) with tensor parallel size {tp}; {left} train, and wait while it generates.",
    "vLLM 作为服务运行在 {gpus} 张卡上，张量并行数为 {tp}；{left} 张卡训练，并在它生成时等待。",
)
_GENERATING = Text("Generation takes an estimated {share:.0%} of a step.", "按估计，生成占每步的 {share:.0%}。")
_ALONE = Text(
    "The model itself generates through transformers; Python overhead between tokens is not included in the speed.",
    "由模型自身通过 transformers 生成：token 之间 Python 的耗时不计入速度。",
)


def task_notes(choice: Choice, request: PlanRequest) -> Iterator[Text]:
    """Sentences on the reference and on what generates; none for plain fine-tuning."""
    strategy, rollout = choice.strategy, choice.strategy.rollout
    if strategy.reference:
        yield _REFERENCES[strategy.reference]
    total = request.machine.accelerator.total_bytes
    if rollout.engine == "colocate":
        yield _COLOCATED.format(share=rollout.share, size=rollout.share * total / _GIB, tp=rollout.tp)
        yield _SLEEPS if rollout.sleep else _AWAKE
    elif rollout.engine == "server":
        left = request.world_size - rollout.gpus
        yield _SERVED.format(gpus=rollout.gpus, tp=rollout.tp, left=left)
    elif rollout.engine == "none" or (request.task is not None and request.task.kind.generates):
        yield _ALONE
    if choice.time.generation and choice.time.total:
        yield _GENERATING.format(share=choice.time.generation / choice.time.total)


def not_rehearsed(request: PlanRequest) -> list[Skipped]:
    """What of a task no rehearsal shows."""
    task = request.task
    if task is None:
        return []
    skipped = [
        Skipped(
            Text("ms-swift's launch", "ms-swift 的启动脚本"),
            Text(
                "TRL was rehearsed: rehearse launch_swift.sh too before you train with it",
                "排练的是 TRL：用 launch_swift.sh 训练之前请先排练它",
            ),
        )
    ]
    if not task.kind.rolls_out or task.engine == "none":
        return skipped
    skipped.append(
        Skipped(
            Text("generation speed", "生成的速度"),
            Text(
                "estimated from what vLLM has to read per token, with all completions at the length limit; "
                "sampling, scheduling and early stopping are not included",
                "按 vLLM 生成每个 token 需读取的数据量估算，所有回答都计到长度上限；不含采样、调度和提前结束",
            ),
        )
    )
    if "server" in task.engines:
        skipped.append(
            Skipped(
                Text("the rollout server's GPUs", "rollout 服务的 GPU"),
                Text(
                    "whether model and cache fit there is estimated from vLLM's memory use, not rehearsed",
                    "模型和缓存能否放下，依据的是 vLLM 的占用数据，而非排练",
                ),
            )
        )
    return skipped
