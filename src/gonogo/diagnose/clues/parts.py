"""A slice past a tensor's end tells which part of the whole came; a failing module tells which setting runs it."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.failure.settings import settings_of
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.patterns import Pattern, compiled_when_used
from gonogo.finding import Text
from gonogo.finding.failure import FailureFacts
from gonogo.finding.log_answer import Clue, CluePlace

_SLICE = Pattern(r"start \(?(\d{1,12})\)? ?\+ ?length \(?(\d{1,12})\)? exceeds dimension size \(?(\d{1,12})\)?")
_WORD = compiled_when_used(r"[a-z]{3,}")
_NO_FEATURE = frozenset(("use", "enable", "with", "the", "num", "size", "model", "training", "train", "core", "data"))
_OFF = ("false", "0", "none", "no", "null", "")
_FRAMES = 3
_MAX = 2


def of_slices(log: FailureLog, facts: FailureFacts) -> Iterator[Clue]:
    """The receiver takes a shard out of what it holds to be the whole, and got one shard."""
    found = log.find(_SLICE)
    if found is None:
        return
    start, length, size = (int(number or 0) for number in found.match.groups())
    if not length or not size:
        return
    place = CluePlace(found.line.path, found.line.number, found.text.strip()[:200])
    if size == length and start % length == 0:
        yield Clue(
            Text(
                "A weight came with {size} entries where its {whole} are expected (part {part} of {length} is cut out "
                "of it): the trainer sent one shard of a tensor-parallel weight, not the whole. Gather the parameter "
                "over its (expert) tensor-parallel group before it is sent, or use the same parallel size in trainer "
                "and engine; a release whose layers mark such parameters as sharded gathers them",
                "收到的权重只有 {size} 项，而应有至少 {whole} 项（要从中取出第 {part} 份，每份 {length} 项）：训练端发"
                "送的是"
                "张量并行权重的一个分片，而不是完整权重。发送前在其（专家）张量并行组内聚合该参数，或让训练端与推理引"
                "擎使用相"
                "同的并行数；会把此类参数标记为分片的版本会自动聚合",
            ).format(size=size, whole=start + length, part=start // length + 1, length=length),
            (place,),
            decides=True,
        )
        return
    yield Clue(
        Text(
            "A slice of {length} from {start} on reaches past the tensor's {size} entries: sender and receiver hold "
            "the tensor to be of different sizes. Compare its shape on both sides (parallel size, padding, layout)",
            "从 {start} 起的 {length} 项超出了张量的 {size} 项：发送方与接收方认为该张量的大小不同。请比较两侧的形状（"
            "并行"
            "数、填充、布局）",
        ).format(length=length, start=start, size=size),
        (place,),
        decides=True,
    )


def of_modules(log: FailureLog, facts: FailureFacts) -> Iterator[Clue]:
    """Settings whose words stand in the path of the code that failed: ``cpu_offloading/`` is what a flag turned on."""
    if not facts.chain or not facts.chain[-1].frames:
        return
    raised = facts.chain[-1]
    told: list[str] = []
    for frame in reversed(raised.frames[-_FRAMES:]):
        if frame.owner not in ("package", "clone"):
            continue
        words = set(_WORD.findall(frame.path.replace("\\", "/").rpartition("-packages/")[2].lower()))
        for setting in settings_of(log):
            wanted = [word for word in _WORD.findall(setting.last_name.lower()) if word not in _NO_FEATURE]
            if len(wanted) < 2 or setting.last_name in told or setting.value.strip().lower() in _OFF:
                continue
            if not all(any(_alike(word, one) for one in words) for word in wanted):
                continue
            told.append(setting.last_name)
            yield Clue(
                Text(
                    "{name} in {source} is what runs the failing code ({file})",
                    "{source}中的 {name} 启用了出错的代码（{file}）",
                ).format(
                    name=setting.name,
                    source=setting.source,
                    file="/".join(frame.path.replace("\\", "/").split("/")[-2:]),
                ),
                (CluePlace(raised.log, raised.line), *((setting.place,) if setting.place is not None else ())),
            )
            if len(told) >= _MAX:
                return


def _alike(one: str, other: str) -> bool:
    """The same word, or one the beginning of the other: offload, offloading; distrib, distributed."""
    short, long = sorted((one, other), key=len)
    return one == other or (len(short) >= 5 and long.startswith(short))
