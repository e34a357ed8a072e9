from gonogo.evidence.rehearsal.divergence import ENGINE_MADE
from gonogo.evidence.rehearsal.rank_divergence import rank_divergence
from gonogo.hazards.rule import Findings, Hazard, RehearsalRecord, Text

_MADE = Text(
    "Each process makes an engine, and all of them build vLLM's process groups together.",
    "每个进程都创建一个引擎，而 vLLM 的进程组由所有进程共同建立。",
)
_STEPPED = Text(
    "The ranks of a tensor-parallel engine reduce in every layer of every step.",
    "张量并行引擎的各 rank 在每一步的每一层都要做归约。",
)
_OTHER_PROMPTS = Text(
    "The ranks of a tensor-parallel engine are one model: each has to be given the same prompts and parameters, in the "
    "same order.",
    "张量并行引擎的各 rank 是同一个模型：必须以相同顺序给每个 rank 相同的 prompt 和参数。",
)
_ON_ALL = Text(
    "Make and call the engine on every rank, outside of conditions on the rank",
    "在每个 rank 上创建并调用引擎，不放在按 rank 判断的分支里",
)
_GATHER = Text(
    "Gather the prompts of the engine's ranks before generate (all_gather_object in their group), and keep each rank's "
    "own part of the answers",
    "generate 之前先在引擎各 rank 的组内收集 prompt（all_gather_object），之后各 rank 取回自己的部分",
)
_ALONE = Text(
    "Or an engine for each GPU (tensor_parallel_size=1): then generate needs no other rank",
    "或每个 GPU 一个引擎（tensor_parallel_size=1）：这样 generate 不需要其他 rank",
)


class RolloutEngineRanksApart(Hazard):
    """The ranks that are one rollout engine do not all make it, do not all call it, or give it other prompts.
    ## What happens
    The run stands still in `vllm.LLM(...)` or in `generate`, at 100 % of one GPU and without an error, until NCCL's
    time-out. With other prompts of the same length nothing stops, and the completions are nonsense.
    ## Why
    In the trainers' processes (`distributed_executor_backend="external_launcher"`) each rank makes an engine of its
    own, and nobody tells the others what it does. All of them build vLLM's groups and agree on the size of the cache.
    With `tensor_parallel_size` above 1 these ranks reduce in every layer: a rank that does not generate leaves the
    others waiting, and one with other prompts mixes theirs with its own.
    ## Example
    ```python
    if rank == 0:
        answers = llm.generate(prompts)                           # wrong: rank 1 holds the other half of the weights
    dist.all_gather_object(parts, prompts, group=engine_ranks)    # right: the same prompts on all of its ranks
    answers = llm.generate([p for part in parts for p in part])
    ```
    ## Cure
    Make the engine on all ranks; gather the prompts in each tensor-parallel group before `generate`, and let every
    rank of it call it as often. Or one GPU to an engine.
    ## When it is safe
    `generate`, `sleep`, `wake_up` and taking weights need no other rank where `tensor_parallel_size` is 1.
    ## Sources
    - https://github.com/vllm-project/vllm/pull/12071: the external launcher: prompts have to be the same on all ranks
    - https://github.com/huggingface/trl/pull/3162: all processes of a tensor-parallel engine need the same input
    - https://github.com/vllm-project/vllm/issues/11400: engines in the trainers' processes
    """

    name = "rollout-engine-ranks-apart"
    title = Text("The ranks of one rollout engine do not do the same", "同一个 rollout 引擎的各 rank 行为不一致")

    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """Ranks that diverge where an engine in their processes waits for the others."""
        divergence = rank_divergence(record)
        if divergence is None or not divergence.of_engine:
            return
        telling = divergence.telling_side(*divergence.of_engine)
        all_generate = divergence.divergence.kind == "other-size" and len(divergence.of_engine) == len(divergence.sides)
        if all_generate and divergence.rank_test is None:
            yield self.divergence_finding(divergence, telling, cure=(_GATHER, _ALONE), because=_OTHER_PROMPTS)
            return
        made = any(side.call is not None and side.call.operator == ENGINE_MADE for side in divergence.of_engine)
        yield self.divergence_finding(
            divergence, telling, cure=_ON_ALL if made else (_ON_ALL, _ALONE), because=_MADE if made else _STEPPED
        )
