from gonogo.evidence.guarded.ends import roots, span_of_rank
from gonogo.evidence.guarded.guarded_run import GuardedRank
from gonogo.evidence.guarded.records import Warned
from gonogo.finding.ranks import ranks_text
from gonogo.finding.words import size
from gonogo.hazards.rule import Certainty, Findings, GuardedRun, Hazard, Severity, Text

_GPU = (
    Text(
        "Keep no tensor with its graph between steps: total += loss.item() (or loss.detach()), not total += loss; "
        "empty lists of outputs",
        "不要跨步保留带计算图的张量：写 total += loss.item()（或 loss.detach()），不要写 total += loss；清空存放输出的"
        "列表",
    ),
    Text(
        "If allocated stays level and only reserved grows: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, and "
        "batches of like length (group_by_length)",
        "若 allocated 平稳而只有 reserved 增长：设 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True，并让各 batch 长度"
        "相近（group_by_length）",
    ),
)
_HOST = (
    Text(
        "Look for what keeps growing between steps: lists of outputs, metrics or batches; a cache in the dataset; "
        "logged tensors",
        "查找逐步增长的对象：存放输出、指标或 batch 的列表；数据集中的缓存；被记录的张量",
    ),
    Text(
        "In DataLoader workers, lists and dicts of Python objects are copied page by page as they are read: keep data "
        "in numpy arrays, tensors or Arrow (datasets)",
        "DataLoader 的 worker 读取 Python 的 list、dict 时会逐页复制：请用 numpy 数组、张量或 Arrow（datasets）存放数"
        "据",
    ),
)


class MemoryGrowsWithSteps(Hazard):
    def in_guarded_run(self, run: GuardedRun) -> Findings:
        """The trends that ranks have warned of, each kind of memory once; it explains an end for want of memory."""
        for what in ("gpu-memory", "host-memory"):
            warned = [(rank, one) for rank in run.ranks for one in rank.warnings if one.what == what]
            if not warned:
                continue
            rank, worst = max(warned, key=lambda pair: pair[1].bytes_per_step)
            died = _died_of_it(run, what)
            ranks = tuple(sorted({one.rank for one, _ in warned}))
            place = Text("GPU memory", "显存") if what == "gpu-memory" else Text("host memory", "主机内存")
            yield self.finding(
                _growth_text(rank, worst, place, ranks),
                title=Text("{place} grows by {each} a step", "{place}每步增长 {each}").format(
                    place=Text(place.en[:1].upper() + place.en[1:], place.zh), each=size(worst.bytes_per_step)
                ),
                certainty=Certainty.CERTAIN if died else Certainty.LIKELY,
                severity=Severity.ERROR if died else Severity.WARNING,
                cure=_GPU if what == "gpu-memory" else _HOST,
                spans=span_of_rank(rank),
                ranks=tuple(sorted({*ranks, *died})),
                confirm=()
                if died
                else (Text("It continues growing over the next hundred steps", "在接下来的一百步中继续增长"),),
            )


def _growth_text(rank: GuardedRank, worst: Warned, place: Text, ranks: tuple[int, ...]) -> Text:
    since = [step for step in rank.steps if step.host_bytes or step.gpu_reserved]
    first, last = (since[0], since[-1]) if since else (None, None)
    seen = Text("", "")
    if first is not None and last is not None and last.step > first.step:
        gpu = worst.what == "gpu-memory"
        before, now = (first.gpu_reserved, last.gpu_reserved) if gpu else (first.host_bytes, last.host_bytes)
        seen = Text(
            f" Seen on rank {rank.rank}: {size(before)} at step {first.step}, {size(now)} at step {last.step}.",
            f"rank {rank.rank} 上所见：第 {first.step} 步 {size(before)}，第 {last.step} 步 {size(now)}。",
        )
    return Text(
        "On {ranks} {place} grew by {each} a step at step {step}, with {left} left: enough for about {steps:.0f} steps "
        "from there.{seen}",
        "{ranks} 的{place}在第 {step} 步时每步增长 {each}，剩余 {left}：从那时起约够 {steps:.0f} 步。{seen}",
    ).format(
        ranks=ranks_text(ranks),
        place=place,
        each=size(worst.bytes_per_step),
        step=worst.step,
        left=size(worst.bytes_left),
        steps=max(worst.steps_left, 0.0),
        seen=seen,
    )


def _died_of_it(run: GuardedRun, what: str) -> tuple[int, ...]:
    """The ranks that ended first, where that was for want of this memory."""
    found = []
    for death in roots(run)[:1]:
        raised = death.raised
        if what == "gpu-memory" and raised is not None and "OutOfMemory" in raised.type:
            found.append(death.rank)
        short = raised is not None and raised.type.endswith("MemoryError")
        if what == "host-memory" and (short or death.signal == 9):
            found.append(death.rank)
    return tuple(found)
