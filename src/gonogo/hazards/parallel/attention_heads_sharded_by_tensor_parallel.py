import math

from gonogo.evidence.failure.message import parse_shape_sizes
from gonogo.evidence.rehearsal.failures import FailedRanks, failed_ranks, failure_places
from gonogo.hazards.rule import Finding, Findings, Hazard, Pattern, RehearsalRecord, Text

_VIEW_PATTERN = Pattern(r"shape '\[(?P<shape>[-\d, ]+)\]' is invalid for input of size (?P<size>\d+)")


class AttentionHeadsShardedByTensorParallel(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """A failed view into heads, if parameters are sharded as DTensors by tensor parallelism alone."""
        for failed in failed_ranks(record):
            as_run = failed.first.as_run
            if failed.failure.phase == "forward" and as_run is not None and as_run.strategy.startswith("TP"):
                yield from self._view_shape_findings(failed, record.world_size)

    def _view_shape_findings(self, failed_group: FailedRanks, world: int) -> Findings:
        found = _VIEW_PATTERN.search(failed_group.failure.message)
        shape = parse_shape_sizes(found.group("shape")) if found is not None else []
        size = int(found.group("size")) if found is not None else 0
        if len(shape) < 3 or 0 in shape or not size:
            return
        width, requested = shape[-1], math.prod(shape)
        if shape.count(-1) == 1 and shape[-2] == -1:
            rows = math.prod(shape[:-2])
            if size % rows == 0 and size // rows % width:
                yield self._cut_head_finding(failed_group, size // rows, width)
        elif requested > size and requested % size == 0:
            parts = requested // size
            if world % parts == 0 and shape[-2] % parts == 0:
                yield self._unsharded_head_count_finding(failed_group, shape[-2], parts)

    def _cut_head_finding(self, failed_group: FailedRanks, columns: int, width: int) -> Finding:
        return self._build_finding(failed_group, self.texts["head_cut_cause"].format(columns=columns, width=width))

    def _unsharded_head_count_finding(self, failed_group: FailedRanks, num_heads: int, parts: int) -> Finding:
        return self._build_finding(
            failed_group, self.texts["all_heads_expected_cause"].format(heads=num_heads, parts=parts)
        )

    def _build_finding(self, failed_group: FailedRanks, cause: Text) -> Finding:
        return self.finding(
            cause,
            spans=failure_places(failed_group.failure),
            ranks=failed_group.ranks,
            module=failed_group.failure.module,
        )
