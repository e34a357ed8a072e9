"""Arithmetic on numbers in a message: divisibility, multiples, products, and values of settings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from gonogo.evidence.failure.settings import RunSetting, setting_meaning, settings_of, world_size
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.patterns import lazy_compile
from gonogo.finding import Text, translated
from gonogo.finding.failure import FailureFacts, Message, RaisedException
from gonogo.finding.log_answer import Clue, CluePlace

_DIVISIBILITY_CHECK_PATTERN = lazy_compile(
    r"((?<![\w.])(?:len\()?[A-Za-z_][\w.]*(?:\[[^\]]{1,30}\])?\)?) ?% ?\(?([A-Za-z_][\w.]*|\d{1,9})\)? ?(?:==|!=) ?0"
)
_SIZE_ERROR_FORMS = ("not_divisible", "size_mismatch")
_MIN_DISTINCTIVE_NUMBER = 17
"""Smaller numbers are often equal by coincidence."""
_MEANING_WORDS = {
    "length": ("length", "seq", "token", "ctx", "context", "position", "len"),
    "experts": ("expert", "moe"),
    "ep": ("expert",),
    "heads": ("head", "attention"),
    "kv_heads": ("head", "group", "kv"),
    "layers": ("layer",),
    "vocabulary": ("vocab", "embed", "token"),
    "micro_batch": ("batch",),
    "global_batch": ("batch",),
    "generations": ("generation", "prompt", "sample"),
    "tp": ("tensor", "tp"),
    "pp": ("pipeline", "pp", "layer"),
    "cp": ("context", "cp"),
    "optimizer_instances": ("optimizer", "distopt", "instances"),
}


_DIVISOR_WORDS_PATTERN = lazy_compile(r"(?://|/|%)=? ?\(?(?:self\.)?([a-z][a-z0-9]*(?:_[a-z0-9]+)+)")


def _zero_difference_clues(log: FailureLog, exception: RaisedException, place: CluePlace) -> Iterator[Clue]:
    """Two settings of one section with the same value, whose difference is the divisor: it has words of their names."""
    code = exception.frames[-1].code[:2000] if exception.frames else ""
    found = _DIVISOR_WORDS_PATTERN.findall(code) if exception.type == "ZeroDivisionError" else []
    words = set(found[-1].split("_")) if found else set()
    sized = [one for one in settings_of(log) if one.number and words & set(one.last_name.split("_"))]
    for index, one in enumerate(sized):
        for other in sized[index + 1 :]:
            same_section = one.name.rpartition(".")[0] == other.name.rpartition(".")[0]
            if one.number == other.number and same_section and one.last_name != other.last_name:
                yield Clue(
                    translated(
                        "{one} and {other} are both {value} in {source}: nothing is left between them, so {divisor} "
                        "is 0. Make the one larger or the other smaller"
                    ).format(
                        one=one.last_name, other=other.last_name, value=one.value, source=one.source, divisor=found[-1]
                    ),
                    (place, *((one.place,) if one.place is not None else ())),
                )
                return


def number_clues(log: FailureLog, facts: FailureFacts) -> Iterator[Clue]:
    """Relations between the numbers of a message, or between them and the run's settings."""
    for raised in facts.chain[-2:]:
        place = CluePlace(raised.log, raised.line)
        yield from _divisibility_check_clues(raised, place)
        yield from _zero_difference_clues(log, raised, place)
        yield from _dimension_clues(raised.message, place)
        yield from _adapter_size_clues(raised, place)
        if raised.message.form in _SIZE_ERROR_FORMS or raised.type == "AssertionError":
            yield from _division_clues(log, raised, place)
        if raised.message.form == "size_mismatch" or raised.message.shapes:
            yield from _view_clues(raised.message, place)
            yield from _size_clues(log, raised.message, place)
        yield from _setting_clues(log, raised.message, place)
        yield from _low_precision_clues(log, raised, place)


def _divisibility_check_clues(exception: RaisedException, place: CluePlace) -> Iterator[Clue]:
    """A divisibility check in the failing line itself: ``assert a % b == 0``."""
    code = exception.frames[-1].code if exception.frames else ""
    if (check := _DIVISIBILITY_CHECK_PATTERN.search(code)) and exception.type in (
        "AssertionError",
        "ValueError",
        "RuntimeError",
    ):
        whole, divisor = check.groups()
        yield Clue(
            translated("The check that failed is `{whole} % {divisor} == 0`: {divisor} has to divide {whole}").format(
                whole=whole, divisor=divisor
            ),
            (place,),
        )


_DIVISOR_PATTERN = lazy_compile(r"(?i)(\w{2,20}) (?:is |must be |to be )?divisible by (\d{1,6})")


def _dimension_clues(message: Message, place: CluePlace) -> Iterator[Clue]:
    """``height divisible by 8 and width divisible by 16`` against the dimensions that the message gives."""
    rules = _DIVISOR_PATTERN.findall(message.text[:2000])
    shape = next((shape for shape in message.shapes if len(shape) == len(rules)), None)
    if shape is None or len(rules) < 2:
        return
    for size, (name, divisor) in zip(shape, rules, strict=True):
        rest = size % int(divisor)
        if rest:
            yield Clue(
                translated(
                    "In {shape}, the {name} {size} is not a multiple of {divisor}: pad it to {padded}{without}"
                ).format(
                    shape=list(shape),
                    name=name,
                    size=size,
                    divisor=divisor,
                    padded=size - rest + int(divisor),
                    without=translated(", or leave this layer out of FP8 (fp8_autocast(enabled=False) around it)")
                    if "FP8" in message.text
                    else "",
                ),
                (place,),
            )


def _division_clues(log: FailureLog, exception: RaisedException, place: CluePlace) -> Iterator[Clue]:
    """A number that is not divisible by another: both from the message, or a setting and the message's divisor."""
    message = exception.message
    numbers = [number for number in message.numbers if number > 1]
    if message.form == "not_divisible" and len(numbers) >= 2:
        whole, divisor = _dividend_and_divisor(message, numbers)
        if whole % divisor:
            yield Clue(
                translated("{whole} = {times} x {divisor} + {rest}: it is not a multiple of {divisor}{names}").format(
                    whole=whole,
                    divisor=divisor,
                    times=whole // divisor,
                    rest=whole % divisor,
                    names=_setting_names(log, whole, divisor),
                ),
                (place,),
            )
            return
    if len(numbers) != 1 or message.form != "not_divisible":
        return
    divisor = numbers[0]
    words = " ".join((message.text, *(frame.code for frame in exception.frames[-1:]))).lower()
    for setting in _size_settings(log):
        meaning = setting_meaning(setting.name)
        if setting.number is None or setting.number <= divisor or setting.number % divisor == 0:
            continue
        if any(word in words for word in _MEANING_WORDS.get(meaning, ())):
            yield Clue(
                translated(
                    "{name} is {value} = {times} x {divisor} + {rest}: pad or truncate it to a multiple of {divisor}"
                ).format(
                    name=setting.name,
                    value=setting.number,
                    divisor=divisor,
                    times=setting.number // divisor,
                    rest=setting.number % divisor,
                ),
                (place, *_setting_places([setting])),
            )
            return


def _dividend_and_divisor(message: Message, numbers: list[int]) -> tuple[int, int]:
    """The dividend and the divisor, in the order of the message's ``a … divisible by b``."""
    first, second = numbers[0], numbers[-1]
    if len(numbers) > 1 and "x" in message.text.split("divisible")[0] and len(numbers) > 2:
        first = math.prod(numbers[:-1])
    return first, second


def _setting_names(log: FailureLog, dividend: int, divisor: int) -> Text:
    """The settings that have these values."""
    named = []
    world = world_size(log)
    for number in (dividend, divisor):
        owners = [setting.name for setting in _size_settings(log) if setting.number == number][:2]
        if number == world and not any(setting_meaning(owner) == "world" for owner in owners):
            owners.insert(0, "world size")
        if owners:
            named.append(f"{number}: {', '.join(dict.fromkeys(owners[:2]))}")
    return Text(f" ({'; '.join(named)})", f"（{'；'.join(named)}）") if named else Text("", "")


_VIEW_SIZE_PATTERN = lazy_compile(r"is invalid for input of size (\d{1,15})")


def _view_clues(message: Message, place: CluePlace) -> Iterator[Clue]:
    """A view whose size doesn't match the number of elements: the dimension that differs."""
    found = _VIEW_SIZE_PATTERN.search(message.text)
    shape = next((shape for shape in message.shapes if len(shape) > 1), None)
    if found is None or shape is None or any(size < 1 for size in shape):
        return
    elements, whole = int(found.group(1)), math.prod(shape)
    for size in shape:
        rest = whole // size
        if rest > 1 and elements % rest == 0 and elements != whole:
            yield Clue(
                translated(
                    "{elements} = {there} x {rest}, but {shape} needs {size} x {rest}: the tensor has {there} "
                    "where {size} is expected (tokens or rows that another code path counted, gathered or split "
                    "differently)"
                ).format(elements=elements, there=elements // rest, rest=rest, shape=list(shape), size=size),
                (place,),
            )
            return


_ADAPTER_PATTERN = lazy_compile(r"(?i)(?:^|[^a-z])(?:lora|adapter|dora)(?:[^a-z]|$)|lora_")
_SHAPE_MISMATCH_FORMS = ("size_mismatch", "not_divisible")


def _adapter_size_clues(exception: RaisedException, place: CluePlace) -> Iterator[Clue]:
    """Sizes that don't match in an adapter's code: it was built for a different layer than the one it is on."""
    frame = exception.frames[-1] if exception.frames else None
    if frame is None or exception.message.form not in _SHAPE_MISMATCH_FORMS or frame.owner == "python":
        return
    file = frame.path.replace("\\", "/").rpartition("/")[2]
    if not any(_ADAPTER_PATTERN.search(text) for text in (frame.code, frame.function, file)):
        return
    yield Clue(
        translated(
            "It fails in an adapter ({function}), whose size or input doesn't match the layer's. This "
            "happens with layers that the adapter's code does not support: experts in one tensor, a latent "
            "size, layers split by tensor or expert parallelism, an overlap that passes on different tokens. "
            "Leave these layers out of target_modules, turn the overlap off, or use a release of {package} "
            "that supports them"
        ).format(function=frame.function, package=frame.package or "the library"),
        (place,),
    )


def _size_clues(log: FailureLog, message: Message, place: CluePlace) -> Iterator[Clue]:
    """Two sizes of which one is a multiple of the other, either of whole tensors or of one dimension."""
    counts = [math.prod(shape) for shape in message.shapes if shape]
    for big in message.shapes:
        for flat in message.shapes:
            elements, part = math.prod(big), math.prod(flat)
            if len(flat) == 1 < len(big) and part > 4096 and elements != part and elements % part == 0:
                yield Clue(
                    translated(
                        "{big} has {elements:,} elements, {times} times {part:,}: one is a whole tensor, the "
                        "other a flat shard of it across {times} ranks (as FSDP1 and ZeRO-3 keep parameters)"
                    ).format(big=list(big), elements=elements, part=part, times=elements // part),
                    (place,),
                )
                return
    if message.form != "size_mismatch" or len(counts) > 3:
        return
    sizes = [number for number in message.numbers if number > 7][:2]
    if len(sizes) == 2 and min(sizes) and max(sizes) % min(sizes) == 0 and max(sizes) != min(sizes):
        small, large = min(sizes), max(sizes)
        times = large // small
        cut_by = next((one for one in _size_settings(log) if _splits_sequences(one) and one.number == times), None)
        meant = (
            translated(
                ", and {name} is {times}: one of the two is whole, while the other is cut across these ranks (or cut "
                "twice). Run with {name} 1 to check; a release of the code at the failing line in which both are cut "
                "alike is the cure"
            ).format(name=cut_by.name, times=times)
            if cut_by is not None
            else translated(
                ": exactly double, as when something is done twice (a cache that the recomputation in "
                "checkpointing appended to, a sequence concatenated with itself)"
            )
            if times == 2
            else Text("", "")
        )
        yield Clue(
            translated("the size {large} is {times} x {small}{meant}").format(
                large=large, times=times, small=small, meant=meant
            ),
            (place,),
        )


def _setting_clues(log: FailureLog, message: Message, place: CluePlace) -> Iterator[Clue]:
    """A number in the message that is a setting's value, or the product of two settings."""
    settings = list(_size_settings(log))
    numbers = [number for number in message.numbers if number >= _MIN_DISTINCTIVE_NUMBER]
    numbers += [size for shape in message.shapes for size in shape if size >= _MIN_DISTINCTIVE_NUMBER]
    for number in dict.fromkeys(numbers):
        equal = [setting for setting in settings if setting.number == number]
        if equal:
            yield Clue(
                translated("{number} in the message is the value of {name}").format(
                    number=number, name=", ".join(dict.fromkeys(setting.name for setting in equal[:2]))
                ),
                (place, *_setting_places(equal[:2])),
            )
        elif pair := _factor_settings(number, settings):
            yield Clue(
                translated("{number} in the message is {one} x {other}").format(
                    number=number, one=f"{pair[0].number} ({pair[0].name})", other=f"{pair[1].number} ({pair[1].name})"
                ),
                (place, *_setting_places(pair)),
            )


def _factor_settings(number: int, settings: list[RunSetting]) -> tuple[RunSetting, RunSetting] | None:
    """Two settings whose product is the number."""
    factors = [one for one in settings if one.number and one.number > 1 and number % one.number == 0]
    for index, one in enumerate(factors[:40]):
        for other in factors[index + 1 : 40]:
            if (one.number or 0) * (other.number or 0) == number and one.name != other.name:
                return one, other
    return None


def _size_settings(log: FailureLog) -> Iterator[RunSetting]:
    """The settings that determine sizes in the run, without duplicate names."""
    seen: set[str] = set()
    for setting in settings_of(log):
        if setting_meaning(setting.name) and setting.number is not None and setting.name not in seen:
            seen.add(setting.name)
            yield setting


def _splits_sequences(setting: RunSetting) -> bool:
    """Whether the setting is a number of ranks that a sequence is cut across."""
    return setting_meaning(setting.name) in ("cp", "sp", "tp")


def _setting_places(settings: Iterable[RunSetting]) -> tuple[CluePlace, ...]:
    return tuple(setting.place for setting in settings if setting.place is not None)


_LOW_PRECISION_PATTERN = lazy_compile(r"(?i)fp8|float8|mxfp|nvfp|quantiz|gemm|cublas")
_LOW_PRECISION_BLOCKS = (16, 32, 128)
"""What a dimension of a low-precision product has to be a multiple of: scaled by tensor, by MXFP8, by blocks."""


def _low_precision_clues(log: FailureLog, exception: RaisedException, place: CluePlace) -> Iterator[Clue]:
    """A dimension that tensor parallelism cuts into pieces that a low-precision kernel can't divide into its blocks."""
    settings = settings_of(log)
    used = next((one for one in settings if one.last_name.startswith(("fp8", "fp4")) and one.value != "false"), None)
    parallel = next((one for one in settings if setting_meaning(one.name) == "tp" and (one.number or 0) > 1), None)
    texts = [exception.message.text[:2000], *(f"{frame.path} {frame.function}" for frame in exception.frames[-3:])]
    if used is None or parallel is None or not any(map(_LOW_PRECISION_PATTERN.search, texts)):
        return
    for setting in settings:
        size, ranks = setting.number or 0, parallel.number or 1
        if setting_meaning(setting.name) != "hidden" or not size or size % ranks:
            continue
        piece = size // ranks
        if failing := [block for block in _LOW_PRECISION_BLOCKS if piece % block]:
            yield Clue(
                translated(
                    "{name} {size} / {parallel} {ranks} = {piece}, which is no multiple of {blocks}: low-precision "
                    "kernels take dimensions that are multiples of 16 (of 32 for MXFP8, of 128 for blockwise scales "
                    "and some libraries). Choose a smaller {parallel}, or a size that divides"
                ).format(
                    name=setting.name,
                    size=f"{size:,}",
                    parallel=parallel.name,
                    ranks=ranks,
                    piece=f"{piece:,}",
                    blocks=", ".join(map(str, failing)),
                ),
                (place, *_setting_places((setting, parallel, used))),
            )
            return
