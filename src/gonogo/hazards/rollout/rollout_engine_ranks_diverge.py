from gonogo.evidence.rehearsal.rank_divergence import rank_divergence
from gonogo.finding.divergence import ENGINE_MADE
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


class RolloutEngineRanksDiverge(Hazard):
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
