import math

from gonogo.evidence.rehearsal.failures import FailedRanks, failed_ranks, failure_places
from gonogo.hazards.rule import Finding, Findings, Hazard, Pattern, RehearsalRecord, Text

_VIEW = Pattern(r"shape '\[(?P<shape>[-\d, ]+)\]' is invalid for input of size (?P<size>\d+)")
_CURE = (
    Text(
        "A tensor-parallel size that divides the attention heads and the key-value heads (num_attention_heads and "
        "num_key_value_heads in config.json), and FSDP or data parallelism for the other ranks",
        "张量并行度取能同时整除注意力头数与键值头数的数（config.json 中的 num_attention_heads 与 "
        "num_key_value_heads），其余 rank 用 FSDP 或数据并行",
    ),
    Text(
        "In your own model: view(batch, tokens, -1, head_dim), or the heads divided by the mesh's size",
        "自己写的模型：view(batch, tokens, -1, head_dim)，或把头数除以 mesh 的大小",
    ),
)


class AttentionHeadsShardedByTensorParallel(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """A view into heads that fails where parameters are sharded as DTensors and nothing else divides the model."""
        for failed in failed_ranks(record):
            as_run = failed.first.as_run
            if failed.failure.phase == "forward" and as_run is not None and as_run.strategy.startswith("TP"):
                yield from self._of_view(failed, record.world_size)

    def _of_view(self, failed: FailedRanks, world: int) -> Findings:
        found = _VIEW.search(failed.failure.message)
        shape = [int(one) for one in found.group("shape").split(",")] if found is not None else []
        if found is None or len(shape) < 3:
            return
        size, width, asked = int(found.group("size")), shape[-1], math.prod(shape)
        if shape.count(-1) == 1 and shape[-2] == -1:
            rows = math.prod(shape[:-2])
            if size % rows == 0 and size // rows % width:
                yield self._cut(failed, size // rows, width)
        elif asked > size and asked % size == 0:
            parts = asked // size
            if world % parts == 0 and shape[-2] % parts == 0:
                yield self._in_full(failed, shape[-2], parts)

    def _cut(self, failed: FailedRanks, columns: int, width: int) -> Finding:
        return self._said(
            failed,
            Text(
                "A rank has {columns} columns of the projection, and a head takes {width}: the heads do not divide "
                "by the tensor-parallel size.",
                "每个 rank 分到投影的 {columns} 列，而一个头需要 {width} 列：头数不能被张量并行度整除。",
            ).format(columns=columns, width=width),
        )

    def _in_full(self, failed: FailedRanks, heads: int, parts: int) -> Finding:
        return self._said(
            failed,
            Text(
                "The view asks for {heads} heads, all that the model has; of the columns, which are cut into {parts} "
                "parts, the rank has one.",
                "view 要求 {heads} 个头，即模型的全部；而列被切成 {parts} 份，每个 rank 只有一份。",
            ).format(heads=heads, parts=parts),
        )

    def _said(self, failed: FailedRanks, cause: Text) -> Finding:
        return self.finding(
            cause, cure=_CURE, spans=failure_places(failed.failure), ranks=failed.ranks, module=failed.failure.module
        )
