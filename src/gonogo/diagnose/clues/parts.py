"""Clues about parts: a slice past a tensor's end shows that one shard was sent, a failing module its setting."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.failure.settings import setting_meaning, settings_of
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.patterns import Pattern, lazy_compile
from gonogo.finding import Text, translated
from gonogo.finding.failure import FailureFacts
from gonogo.finding.log_answer import Clue, CluePlace

_SLICE_ERROR_PATTERN = Pattern(
    r"start \(?(\d{1,12})\)? ?\+ ?length \(?(\d{1,12})\)? exceeds dimension size \(?(\d{1,12})\)?"
)
_LOWERCASE_WORD_PATTERN = lazy_compile(r"[a-z]{3,}")
_GENERIC_WORDS = frozenset(
    ("use", "enable", "with", "the", "num", "size", "model", "training", "train", "core", "data")
)
_EMPTY_TENSOR_PATTERN = lazy_compile(r"\b0-dim tensor|0-D tensor|input of size 0\b|size \[0\]|has zero elements")
_PARAMETER_OFFLOAD_KEYS = ("offload_param", "nvme_path", "zenflow")
_OFF_VALUES = ("false", "0", "none", "no", "null", "")
_MAX_FRAMES = 3
_MAX_MODULE_CLUES = 2
_SHAPE_INDEX = ".shape["


def sliced_shard_clues(log: FailureLog, facts: FailureFacts) -> Iterator[Clue]:
    """A receiver that slices its shard from a tensor that it expects to be full, but was sent a single shard."""
    found = log.find(_SLICE_ERROR_PATTERN)
    if found is None:
        return
    start, length, size = (int(number or 0) for number in found.match.groups())
    if not length or not size:
        return
    place = CluePlace(found.line.path, found.line.number, found.text.strip()[:200])
    if size == length and start % length == 0:
        yield Clue(
            translated(
                "A weight arrived with {size} entries where at least {whole} are expected (the slice from "
                "{start} on is taken from it): the trainer sent one shard of a tensor-parallel weight, not "
                "the whole. Gather the parameter over its (expert) tensor-parallel group before sending it, "
                "or use the same parallel size in trainer and engine; a release whose layers mark such "
                "parameters as sharded gathers them for you"
            ).format(size=size, whole=start + length, start=start),
            (place,),
            decides=True,
        )
        return
    yield Clue(
        translated(
            "A slice of {length} from {start} on reaches past the tensor's {size} entries: what cuts it and what made "
            "it disagree on its size. Compare its shape on both sides (the number of shards or sub-groups that it is "
            "put together from, parallel size, padding, layout)"
        ).format(length=length, start=start, size=size),
        (place,),
        decides=True,
    )


def empty_parameter_clues(log: FailureLog, facts: FailureFacts) -> Iterator[Clue]:
    """A parameter without dimensions or elements, as ZeRO-3 leaves it after partitioning."""
    raised = facts.chain[-1] if facts.chain else None
    if raised is None or log.setup.zero_stage != 3:
        return
    code = raised.frames[-1].code if raised.frames else ""
    reads_shape = raised.message.text.strip() == "tuple index out of range" and _SHAPE_INDEX in code
    if not reads_shape and not _EMPTY_TENSOR_PATTERN.search(raised.message.text):
        return
    offload = next((one for one in settings_of(log) if one.last_name in _PARAMETER_OFFLOAD_KEYS), None)
    yield Clue(
        translated(
            "Under ZeRO-3 a parameter is an empty placeholder outside its module's forward and "
            "backward{away}: this line reads one as if it were the full tensor. Use stage 2, keep parameters "
            "on the GPU, or gather it there (deepspeed.zero.GatheredParameters)"
        ).format(away=Text(f" ({offload.name} is on)", f"（启用了 {offload.name}）") if offload is not None else ""),
        (CluePlace(raised.log, raised.line), *((offload.place,) if offload is not None and offload.place else ())),
    )


def enabled_feature_clues(log: FailureLog, facts: FailureFacts) -> Iterator[Clue]:
    """Settings that enable the failing code, by its path: a flag for code in ``cpu_offloading/``."""
    if not facts.chain or not facts.chain[-1].frames:
        return
    raised = facts.chain[-1]
    told: list[str] = []
    for frame in reversed(raised.frames[-_MAX_FRAMES:]):
        if frame.owner not in ("package", "clone"):
            continue
        words = set(_LOWERCASE_WORD_PATTERN.findall(frame.path.replace("\\", "/").rpartition("-packages/")[2].lower()))
        for setting in settings_of(log):
            wanted = [
                word
                for word in _LOWERCASE_WORD_PATTERN.findall(setting.last_name.lower())
                if word not in _GENERIC_WORDS
            ]
            if len(wanted) < 2 or setting.last_name in told or setting.value.strip().lower() in _OFF_VALUES:
                continue
            if setting.value.strip() == "1" and setting.last_name.endswith(("size", "degree")):
                continue  # a parallel size of 1 is off
            if not all(any(_is_same_word(word, one) for one in words) for word in wanted):
                continue
            told.append(setting.last_name)
            yield Clue(
                translated("{name} in {source} is what runs the failing code ({file})").format(
                    name=setting.name,
                    source=setting.source,
                    file="/".join(frame.path.replace("\\", "/").split("/")[-2:]),
                ),
                (CluePlace(raised.log, raised.line), *((setting.place,) if setting.place is not None else ())),
            )
            if len(told) >= _MAX_MODULE_CLUES:
                return


def _is_same_word(first: str, other: str) -> bool:
    """Whether two words are equal or one begins with the other: offload, offloading; distrib, distributed."""
    short, long = sorted((first, other), key=len)
    return first == other or (len(short) >= 5 and long.startswith(short))


_NO_SHARD_PATTERN = Pattern(r"\bNO_SHARD\b")
_INVALID_PROBABILITIES_PATTERN = Pattern(r"probability tensor contains either `?inf`?, `?nan`?")
_WEIGHT_SYNC_PATTERN = Pattern(r"(?i)update_weights|updat\w+ (?:the )?weights|sync\w* weights|weight sync|load_weights")


def no_shard_clues(log: FailureLog, facts: FailureFacts) -> Iterator[Clue]:
    """FSDP1's strategy NO_SHARD, which it switches to by itself on a single rank."""
    raised = facts.chain[-1] if facts.chain else None
    if raised is None or not _NO_SHARD_PATTERN.search(raised.message.text[:2000]):
        return
    yield Clue(
        translated(
            "FSDP1 switches to NO_SHARD by itself where its group has a single rank (one GPU, or a shard size of 1), "
            "and "
            "some of its calls, such as gathering with offload_to_cpu, do not support that. Use more than one GPU per "
            "shard group, run this part without FSDP or without the offload, or use FSDP2"
        ),
        (CluePlace(raised.log, raised.line),),
    )


def weight_sync_clues(log: FailureLog, facts: FailureFacts) -> Iterator[Clue]:
    """An inference engine that got NaN or inf probabilities after a weight sync."""
    raised = facts.chain[-1] if facts.chain else None
    if raised is None or not _INVALID_PROBABILITIES_PATTERN.search(raised.message.text[:2000]):
        return
    before = [
        found
        for found in log.find_all(_WEIGHT_SYNC_PATTERN)
        if (found.line.path, found.line.number) < (raised.log, raised.line)
    ]
    if not before:
        return
    last = before[-1].line
    yield Clue(
        translated(
            "The engine was sent weights just before its probabilities became inf or nan: what arrived is "
            "wrong or incomplete (names or layouts converted for another class of model, one shard in place "
            "of the whole, missing scales). Generate once before the first weight update: if that works, "
            "compare the names and shapes sent with the engine's own, and use the weight-sync path that "
            "converts this model (colocated, or through the bridge)"
        ),
        (CluePlace(last.path, last.number, last.text.strip()[:200]), CluePlace(raised.log, raised.line)),
    )


_WOKE_WEIGHTS_PATTERN = Pattern(r"wake_up\?tags=weights(?:\s|[\"']|$)|wake_up\(tags=\[['\"]weights['\"]\]\)")
_WOKE_CACHE_PATTERN = Pattern(r"wake_up\b[^\n]{0,40}kv_cache|POST /wake_up (?:HTTP|\")")
_REQUEST_PATTERN = Pattern(r"POST /(?:v1/)?(?:chat/completions|completions|generate)\b")


def wake_up_clues(log: FailureLog, facts: FailureFacts) -> Iterator[Clue]:
    """An engine of which only the weights were woken up, and that was asked to generate."""
    woken = log.find(_WOKE_WEIGHTS_PATTERN)
    if woken is None or log.find(_WOKE_CACHE_PATTERN) is not None:
        return
    asked = [
        found
        for found in log.find_all(_REQUEST_PATTERN)
        if (found.line.path, found.line.number) > (woken.line.path, woken.line.number)
    ]
    if not asked:
        return
    yield Clue(
        translated(
            "Only the weights were woken up (tags=weights), and the engine was asked to generate while its KV cache "
            "was still asleep, so that its memory was not mapped. Wake up the KV cache too (tags=kv_cache, after the "
            "weight update) before the first request"
        ),
        tuple(CluePlace(one.path, one.number, one.text.strip()[:200]) for one in (woken.line, asked[0].line)),
        against=("rollout-engine-slept-while-requests-run",),
        decides=True,
    )


_MIXED_TENSORS_PATTERN = Pattern(r"got mixed torch\.Tensor and DTensor")
_MODULE_CALL_PATTERN = lazy_compile(r"self\.(\w+(?:\.\w+)*)\(")


def mixed_dtensor_clues(log: FailureLog, facts: FailureFacts) -> Iterator[Clue]:
    """A plain tensor passed to a module whose weight is a DTensor due to tensor parallelism."""
    raised = facts.chain[-1] if facts.chain else None
    if raised is None or not _MIXED_TENSORS_PATTERN.search(raised.message.text[:2000]):
        return
    setting = next(
        (one for one in settings_of(log) if setting_meaning(one.name) == "tp" and (one.number or 0) > 1), None
    )
    if setting is None:
        return
    codes = (frame.code[:2000] for frame in reversed(raised.frames[-12:]))
    module = next((found.group(1) for code in codes if (found := _MODULE_CALL_PATTERN.search(code))), "")
    yield Clue(
        translated(
            "With {name}={value} every module between sharded ones needs an entry in the tensor-parallel "
            "plan: {module} has a DTensor weight and gets a plain tensor, so the plan does not cover it, or "
            "covers it with a layout different from its input's. Add it to the plan, or use {name}=1"
        ).format(name=setting.name, value=setting.value[:20], module=module or translated("the module that failed")),
        (CluePlace(raised.log, raised.line), *((setting.place,) if setting.place is not None else ())),
        against=("fsdp2-method-outside-forward",),
    )
