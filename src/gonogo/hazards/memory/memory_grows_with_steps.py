from gonogo.evidence.guarded.ends import rank_file_span, root_deaths
from gonogo.evidence.guarded.guarded_run import GuardedRank
from gonogo.evidence.guarded.records import WarningRecord
from gonogo.finding.ranks import ranks_text
from gonogo.finding.words import size
from gonogo.hazards.rule import Certainty, Findings, GuardedRun, Hazard, Severity, Text, translated

_GPU_MEMORY_CURE = (
    translated(
        "Keep no tensor with its graph between steps: total += loss.item() (or loss.detach()), not total += "
        "loss; clear lists of outputs"
    ),
    translated(
        "If allocated stays level and only reserved grows: set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, "
        "and use batches of similar length (group_by_length)"
    ),
)
_HOST_MEMORY_CURE = (
    translated(
        "Look for what keeps growing between steps: lists of outputs, metrics or batches; a cache in the dataset; "
        "logged tensors"
    ),
    translated(
        "In DataLoader workers, lists and dicts of Python objects are copied page by page as they are read: keep data "
        "in numpy arrays, tensors or Arrow (datasets)"
    ),
)


class MemoryGrowsWithSteps(Hazard):
    def in_guarded_run(self, run: GuardedRun) -> Findings:
        """Trends that ranks have warned of, one per kind of memory; they explain a later out-of-memory error."""
        for what in ("gpu-memory", "host-memory"):
            warned = [(rank, one) for rank in run.ranks for one in rank.warnings if one.what == what]
            if not warned:
                continue
            rank, worst = max(warned, key=lambda pair: pair[1].bytes_per_step)
            died = _ranks_out_of_memory(run, what)
            ranks = tuple(sorted({one.rank for one, _ in warned}))
            place = translated("GPU memory") if what == "gpu-memory" else translated("host memory")
            yield self.finding(
                self._growth_text(rank, worst, place, ranks),
                title=translated("{place} grows by {each} per step").format(
                    place=Text(place.en[:1].upper() + place.en[1:], place.zh), each=size(worst.bytes_per_step)
                ),
                certainty=Certainty.CERTAIN if died else Certainty.LIKELY,
                severity=Severity.ERROR if died else Severity.WARNING,
                cure=_GPU_MEMORY_CURE if what == "gpu-memory" else _HOST_MEMORY_CURE,
                spans=rank_file_span(rank),
                ranks=tuple(sorted({*ranks, *died})),
            )

    def _growth_text(self, rank: GuardedRank, warning: WarningRecord, place: Text, ranks: tuple[int, ...]) -> Text:
        since = [step for step in rank.steps if step.host_bytes or step.gpu_reserved]
        first, last = (since[0], since[-1]) if since else (None, None)
        seen = Text("", "")
        if first is not None and last is not None and last.step > first.step:
            gpu = warning.what == "gpu-memory"
            before, now = (first.gpu_reserved, last.gpu_reserved) if gpu else (first.host_bytes, last.host_bytes)
            seen = Text(
                f" Seen on rank {rank.rank}: {size(before)} at step {first.step}, {size(now)} at step {last.step}.",
                f"rank {rank.rank} 上所见：第 {first.step} 步 {size(before)}，第 {last.step} 步 {size(now)}。",
            )
        return self.texts["growth_cause"].format(
            ranks=ranks_text(ranks),
            place=place,
            each=size(warning.bytes_per_step),
            step=warning.step,
            left=size(warning.bytes_left),
            steps=max(warning.steps_left, 0.0),
            seen=seen,
        )


def _ranks_out_of_memory(run: GuardedRun, memory_kind: str) -> tuple[int, ...]:
    """The ranks that ended first, if they ran out of this memory."""
    found = []
    for death in root_deaths(run)[:1]:
        raised = death.raised
        if memory_kind == "gpu-memory" and raised is not None and "OutOfMemory" in raised.type:
            found.append(death.rank)
        short = raised is not None and raised.type.endswith("MemoryError")
        if memory_kind == "host-memory" and (short or death.signal == 9):
            found.append(death.rank)
    return tuple(found)
