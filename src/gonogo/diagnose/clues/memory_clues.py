"""Memory sizes in a log, compared with capacities and with the free memory that the log reports."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gonogo.evidence.failure.settings import setting_meaning, settings_of
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.patterns import Pattern, lazy_compile
from gonogo.finding import Text, translated
from gonogo.finding.failure import FailureFacts, RaisedException
from gonogo.finding.log_answer import Clue, CluePlace
from gonogo.finding.words import size

_SIZE_PATTERN = r"(\d{1,12}(?:\.\d{1,12})?) ?([KMGT])i?B"
_REQUESTED_PATTERN = lazy_compile(rf"Tried to allocate {_SIZE_PATTERN}")
_FREE_PATTERN = lazy_compile(rf"of which {_SIZE_PATTERN} is free|; {_SIZE_PATTERN} free")
_OOM_LINE_PATTERN = Pattern(r"Tried to allocate [\d.]+ [KMGT]i?B")
_UNALLOCATED_PATTERN = lazy_compile(rf"and {_SIZE_PATTERN} is reserved by PyTorch but unallocated")
_HOST_MEMORY_PATTERN = Pattern(
    r"(?i)(?:memory|mem|ram)\b.{0,60}?\d{2,6}(?:\.\d+)? ?(?:[GMT]i?B)? ?(?:/|of|out of) ?\d{2,6}(?:\.\d+)? ?[GMT]i?B"
)
_USED_OF_TOTAL_PATTERN = lazy_compile(
    r"(\d{2,6}(?:\.\d{1,6})?) ?([GMT]i?B)? ?(?:/|of|out of) ?(\d{2,6}(?:\.\d{1,6})?) ?([GMT])i?B"
)
_UNIT_EXPONENTS = {"K": 10, "M": 20, "G": 30, "T": 40}
_NEARLY_FULL_FRACTION = 0.95
_SUFFICIENT_FREE_RATIO = 1.5
"""Free memory, in units of the request, that certainly sufficed: PyTorch gives cached blocks back before it reports."""
_OOM_HAZARDS = (
    *("rollout-engine-wakes-before-trainer-frees", "gpu-oom-model-states", "gpu-oom-activations"),
    *("gpu-oom-eval-logits", "gpu-held-by-another-process"),
)


def memory_size_clues(log: FailureLog, facts: FailureFacts) -> Iterator[Clue]:
    """Signs in the sizes that a memory error states: enough was free, fragmentation, the host was almost full."""
    for raised in facts.chain:
        text = " ".join(raised.message.text.split())
        yield from _gpu_allocation_clues(text, CluePlace(raised.log, raised.line))
    if not facts.chain and (found := log.find(_OOM_LINE_PATTERN)) is not None:
        yield from _gpu_allocation_clues(found.text, CluePlace(found.line.path, found.line.number))
    if facts.chain and _REQUESTED_PATTERN.search(facts.chain[-1].message.text):
        yield from _gathered_unit_clues(facts.chain[-1])
        yield from _growth_clues(log, facts.chain[-1])
        yield from _parallel_plan_clues(log, facts.chain[-1])
    yield from _host_memory_clues(log, facts)


_GATHERING_FUNCTIONS = ("foreach_all_gather", "all_gather_inputs", "_all_gather_flat_param", "_alloc_padded_unsharded")
_MORE_THAN_A_LAYER = 8 << 30


def _gathered_unit_clues(raised: RaisedException) -> Iterator[Clue]:
    """A single all-gather of FSDP that asks for more than any layer has."""
    requested = _parse_bytes(_REQUESTED_PATTERN.search(raised.message.text))
    gathers = any(frame.function.startswith(_GATHERING_FUNCTIONS) for frame in raised.frames[-4:])
    if requested is not None and gathers and requested >= _MORE_THAN_A_LAYER:
        yield Clue(
            translated(
                "FSDP gathers {asked} at once here, more than a layer has: the layers are not wrapped one by one, so "
                "that one unit holds most of the model. Name the layer's class (fsdp_transformer_layer_cls_to_wrap "
                "with TRANSFORMER_BASED_WRAP, or fully_shard on each layer); if it is named, or the model names it "
                "(_no_split_modules), this release of accelerate or of the trainer does not find it: use a later one"
            ).format(asked=size(requested)),
            (CluePlace(raised.log, raised.line),),
            against=("gpu-oom-activations", "gpu-oom-model-states"),
            decides=True,
        )


_MEMORY_FIGURE_PATTERN = Pattern(
    r"(?i)\bmem(?:ory)?\b[^\n:=]{0,30}[\"']? ?[:=] ?(?P<figure>\d{1,6}(?:\.\d{1,6})?)(?: ?G|\b)"
)
_FEWEST_FIGURES = 3
_GROWN_BY = 1.2


def _growth_clues(log: FailureLog, raised: RaisedException) -> Iterator[Clue]:
    """Memory that the lines of the steps report, and that only ever grows; the first step is not compared."""
    found = list(log.find_all(_MEMORY_FIGURE_PATTERN))
    figures = [float(one.match.group("figure")) for one in found]
    if len(figures) < _FEWEST_FIGURES or figures != sorted(set(figures)) or figures[-1] < _GROWN_BY * figures[1]:
        return
    yield Clue(
        translated(
            "The memory that the steps report only ever grows ({first} at first, {last} at last), until it ran out: "
            "something is kept from step to step (outputs or losses with their graph, a cache, a dict of tensors that "
            "checkpointed calls hold), or the samples get longer. To tell: give it one sample again and again; if it "
            "still grows, turn off features of the model's code one by one, or use another release of it"
        ).format(first=f"{figures[0]:g}", last=f"{figures[-1]:g}"),
        tuple(CluePlace(one.line.path, one.line.number, one.text.strip()[:200]) for one in (found[0], found[-1])),
        against=("gpu-oom-activations", "gpu-oom-model-states"),
        decides=True,
    )


_MEGATRON_PATTERN = lazy_compile(r"(?i)megatron")
_PLAN_NAMES = ("tp", "autotp_size")


def _parallel_plan_clues(log: FailureLog, raised: RaisedException) -> Iterator[Clue]:
    """Tensor parallelism that divides only what its plan names, outside Megatron, whose layers divide themselves."""
    settings = settings_of(log)
    if any(_MEGATRON_PATTERN.search(frame.path) for frame in raised.frames) or any(
        _MEGATRON_PATTERN.search(f"{one.name} {one.value}") for one in settings
    ):
        return
    for setting in settings:
        named = setting_meaning(setting.name) == "tp" or setting.last_name in _PLAN_NAMES
        if named and (setting.number or 0) > 1 and "rollout" not in setting.name and "vllm" not in setting.name:
            plan = next((one.name for one in settings if _PLAN_SETTING_PATTERN.search(one.name)), "")
            yield Clue(
                translated(
                    "{name} is {value} in {source}, but tensor parallelism divides only the modules that its plan "
                    "{plan} matches; every other one is whole on each rank. Compare the memory after loading with "
                    "the model's bytes / {value}: if it is far more, the plan does not match this model's names"
                ).format(
                    name=setting.name,
                    value=setting.value[:20],
                    source=setting.source,
                    plan=Text(f"({plan})", f"（{plan}）") if plan else Text("(tp_plan)", "（tp_plan）"),
                ),
                (CluePlace(raised.log, raised.line), *((setting.place,) if setting.place is not None else ())),
            )
            return


_PLAN_SETTING_PATTERN = lazy_compile(r"(?i)tp_plan|partition_config|parallel_plan")


def _gpu_allocation_clues(text: str, place: CluePlace) -> Iterator[Clue]:
    """An allocation that failed although enough GPU memory was free or reserved."""
    requested, free = _parse_bytes(_REQUESTED_PATTERN.search(text)), _parse_bytes(_FREE_PATTERN.search(text))
    if requested is None or free is None:
        return
    if free > _SUFFICIENT_FREE_RATIO * requested:
        yield Clue(
            translated(
                "{asked} was requested and {free} was free: the GPU had not run out of memory. The request "
                "was refused by a per-process limit (set_per_process_memory_fraction, MPS, a container's "
                "limit), a fragmented address space, or a library that maps memory itself"
            ).format(asked=size(requested), free=size(free)),
            (place,),
            _OOM_HAZARDS,
        )
        return
    unused = _parse_bytes(_UNALLOCATED_PATTERN.search(text))
    if unused is not None and unused > requested:
        yield Clue(
            translated(
                "{asked} was requested, and {unused} is reserved by PyTorch but unused: enough, but fragmented "
                "(PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True)"
            ).format(asked=size(requested), unused=size(unused)),
            (place,),
        )


def _host_memory_clues(log: FailureLog, facts: FailureFacts) -> Iterator[Clue]:
    """Reported host memory usage near the total, if a process was killed."""
    if -9 not in facts.exit_codes and not any(
        raised.type in ("MemoryError", "OutOfMemoryError") for raised in facts.chain
    ):
        return
    for found in log.find_all(_HOST_MEMORY_PATTERN):
        match = _USED_OF_TOTAL_PATTERN.search(found.text)
        if match is None:
            continue
        whole = float(match.group(3)) * 2 ** _UNIT_EXPONENTS[match.group(4)]
        used = float(match.group(1)) * 2 ** _UNIT_EXPONENTS[(match.group(2) or match.group(4))[0]]
        if whole and _NEARLY_FULL_FRACTION <= used / whole <= 1.01:
            yield Clue(
                translated(
                    "The host had {used} of its {whole} of memory in use: at that point the kernel, or the "
                    "container's memory limit, kills processes"
                ).format(used=size(used), whole=size(whole)),
                (CluePlace(found.line.path, found.line.number, found.text.strip()[:200]),),
            )
            return


def _parse_bytes(match: re.Match[str] | None) -> float | None:
    if match is None:
        return None
    number, unit = [group for group in match.groups() if group is not None][:2]
    return float(number) * 2.0 ** _UNIT_EXPONENTS[unit]
