"""Turns a plan into a report: the ranking with its reasons, what does not fit, and what would make it fit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from msgspec.structs import asdict

from gonogo.evidence.environment.hardware import Accelerator, all_accelerators
from gonogo.finding import Report, Skipped, Text, Verdict, translated
from gonogo.finding.text import join_texts
from gonogo.finding.trials import planned
from gonogo.trials.plan import roofline
from gonogo.trials.plan.choice import UNCERTAINTY_BY_SOURCE, Choice
from gonogo.trials.plan.fits import HOST_RESERVE_SHARE
from gonogo.trials.plan.launch_files.arguments import CONFIG, FSDP_CONFIG
from gonogo.trials.plan.reasons import GIB, bottleneck_text, ranking_reasons, shortfall
from gonogo.trials.plan.request import PlanRequest
from gonogo.trials.plan.search import PlanResult
from gonogo.trials.plan.solve import SolveResult
from gonogo.trials.plan.task.rollout import SERVER_MEMORY_SHARE
from gonogo.trials.plan.task_notes import unrehearsed_parts
from gonogo.trials.plan.write import strategy_files
from gonogo.virtual.measuring.jobs import ModelFacts

_MAX_GPUS = 1024
_SHOWN_FILES = (CONFIG, FSDP_CONFIG, "launch_deepspeed.sh", "launch_torchrun.sh")


def plan_report(plan: PlanResult, notes: Sequence[Text] = ()) -> Report:
    """GO if a strategy that was rehearsed at full depth fits, NO-GO if none fits, else CANNOT-TELL."""
    rehearsed = any(choice.source == "rehearsed" for choice in plan.fitting)
    verdict = Verdict.GO if rehearsed else Verdict.CANNOT_TELL if plan.fitting or plan.failed else Verdict.NO_GO
    return Report(
        command="plan",
        verdict=verdict,
        covered=tuple(covered_items(plan, [choice for choice in plan.fitting if choice.source == "rehearsed"])),
        skipped=tuple(_skipped_items(plan)),
        plan=_plan_report(plan),
        notes=(*notes, *_plan_notes(plan)),
    )


def _plan_notes(plan: PlanResult) -> list[Text]:
    notes = []
    if plan.request.global_batch is None:
        notes.append(
            translated("--global-batch not given: using {batch} samples per step").format(batch=plan.global_batch)
        )
    return [*notes, *length_notes(plan.request.seq_len, plan.facts), *missing_input_notes(plan.request)]


def length_notes(seq_len: int, facts: ModelFacts) -> list[Text]:
    """A note if samples are longer than the model's config provides for."""
    if seq_len <= facts.positions or not facts.positions:
        return []
    return [
        translated(
            "sequences of {length} are longer than the model's {positions} positions: its config also needs scaled "
            "rotary positions (rope_scaling, such as YaRN)"
        ).format(length=seq_len, positions=facts.positions)
    ]


def missing_input_notes(request: PlanRequest) -> list[Text]:
    """Notes on what could not be judged because inputs were not given."""
    if request.machine.host_bytes is not None:
        return []
    return [translated("--host-memory not given: whether offloaded states fit in host memory was not checked")]


def covered_items(plan: PlanResult | SolveResult, full_depth_choices: Sequence[Choice]) -> list[Text]:
    """What was rehearsed. ``full_depth_choices``: those rehearsed with all layers."""
    lines = [
        translated("{count} rehearsals of the real {stack} ({new} new, {old} cached), {seconds:.0f} s").format(
            stack=_stack_text(plan.request),
            count=plan.rehearsed + plan.reused,
            new=plan.rehearsed,
            old=plan.reused,
            seconds=plan.seconds,
        )
    ]
    if full_depth_choices:
        lines.append(
            translated("rehearsed at full depth: {what}").format(
                what=join_texts((choice.strategy.label for choice in full_depth_choices), "; ", "；")
            )
        )
    return lines


_STACKS = {
    "any": translated("transformers with DeepSpeed or FSDP2"),
    "zero": translated("transformers and DeepSpeed"),
    "fsdp2": translated("transformers and FSDP2"),
}


def _stack_text(request: PlanRequest) -> Text:
    return _STACKS[request.sharding] if request.task is None else translated("TRL, transformers and DeepSpeed")


def _skipped_items(plan: PlanResult) -> list[Skipped]:
    skipped = []
    if plan.unsettled:
        names = join_texts((choice.strategy.label for choice in plan.unsettled), "; ", "；")
        skipped.append(
            Skipped(
                names,
                translated(
                    "these may or may not fit: they were not rehearsed at full depth, because none is clearly "
                    "faster than the best"
                ),
            )
        )
    return [*skipped, *skipped_checks(plan.failed, plan.request)]


def skipped_checks(failed_choices: Sequence[tuple[Choice, str]], request: PlanRequest) -> list[Skipped]:
    """What no plan covers, and the strategies whose rehearsal failed to produce figures."""
    speed = request.machine.accelerator.speed
    assert speed is not None
    skipped = [
        *unrehearsed_parts(request),
        Skipped(
            translated("step times"),
            translated(
                "roofline estimates ({matmul:.0%} of matmul FLOP/s, {memory:.0%} of memory bandwidth, "
                "{link:.0%} of link bandwidth), for ranking only"
            ).format(matmul=speed.matmul_share, memory=roofline.MEMORY_SHARE, link=roofline.LINK_SHARE),
        ),
    ]
    for choice, message in failed_choices:
        skipped.append(
            Skipped(
                choice.strategy.label,
                translated("its rehearsal failed: {message}").format(message=message.strip().partition("\n")[0]),
            )
        )
    return skipped


def _plan_report(plan: PlanResult) -> planned.Plan:
    request = plan.request
    return make_plan(
        request,
        plan.facts,
        plan.global_batch,
        fitting=tuple(summarize_strategy(choice, request, plan.fitting[0]) for choice in plan.fitting),
        too_large=tuple(summarize_too_large(choice, request) for choice in plan.too_large),
        memory_at=plan.memory_at,
        seconds=plan.seconds,
        files=tuple(files_to_show(choice, request, plan.facts) for choice in plan.fitting),
    )


def files_to_show(choice: Choice, request: PlanRequest, facts: ModelFacts) -> tuple[tuple[str, str], ...]:
    """(name, text) of a strategy's files, to be shown on a page."""
    files = strategy_files(choice, request, facts)
    return tuple((name, files[name]) for name in _SHOWN_FILES if name in files)


def make_plan(request: PlanRequest, facts: ModelFacts, global_batch: int, **found: Any) -> planned.Plan:
    """The plan's inputs, together with what was ``found``."""
    machine, task = request.machine, request.task
    return planned.Plan(
        model=planned.Model(request.name, facts.model_class, facts.parameters, facts.trainable, facts.depth),
        accelerator=machine.accelerator.name,
        gpus=machine.count,
        nodes=machine.nodes,
        capacity_bytes=machine.accelerator.total_bytes - machine.accelerator.allowance_bytes,
        host_memory_bytes=machine.host_bytes,
        seq_len=request.seq_len,
        tune=request.tune,
        global_batch=global_batch,
        task="" if task is None else task.task,
        prompt_len=0 if task is None else task.prompt_len,
        generations=0 if task is None else task.generations,
        **found,
    )


def summarize_strategy(choice: Choice, request: PlanRequest, fastest_choice: Choice | None) -> planned.StrategySummary:
    """Summarize a strategy. ``fastest_choice``: what it is compared with, if anything."""
    strategy = choice.strategy
    return planned.StrategySummary(
        strategy=strategy.label.en,
        strategy_zh=strategy.label.zh,
        sharding=strategy.family.sharding,
        replicas=strategy.family.replicas,
        context_parallel=strategy.family.context,
        tensor_parallel=strategy.family.tensor,
        expert_parallel=strategy.family.experts,
        zero_stage=strategy.family.zero,
        offload_optimizer=strategy.family.optimizer,
        offload_parameters=strategy.family.parameters,
        small_buckets=strategy.family.small_buckets,
        gradient_checkpointing=strategy.checkpointing,
        micro_batch=strategy.micro_batch,
        gradient_accumulation=strategy.accumulation,
        source=choice.source,
        allocated_bytes=round(choice.allocated),
        reserved_bytes=round(choice.reserved),
        band=UNCERTAINTY_BY_SOURCE[choice.source],
        host_bytes_of_node=round(choice.host * request.machine.count),
        nvme_bytes_of_node=round(choice.nvme * request.machine.count),
        by_category={name: round(nbytes) for name, nbytes in choice.by_category.items()},
        seconds_of_step=choice.time.total,
        tokens_per_second_per_gpu=choice.tokens_per_second,
        limit=choice.time.limit,
        limit_said=bottleneck_text(choice),
        why=tuple(ranking_reasons(choice, request, fastest_choice)) if choice.room.fits else (),
        reference=strategy.reference,
        rollout=_to_rollout(choice),
    )


def _to_rollout(choice: Choice) -> planned.Rollout | None:
    chosen = choice.strategy.rollout
    if not chosen.engine:
        return None
    share = SERVER_MEMORY_SHARE if chosen.engine == "server" else chosen.share
    return planned.Rollout(chosen.engine, chosen.tp, share, chosen.sleep, chosen.gpus, choice.time.generation)


def summarize_too_large(choice: Choice, request: PlanRequest) -> planned.StrategyTooLarge:
    """Summarize a strategy that does not fit, with what would make it fit."""
    strategy = summarize_strategy(choice, request, None)
    return planned.StrategyTooLarge(
        **asdict(strategy), shortfall=shortfall(choice, request), would_fit=tuple(_changes_to_fit(choice, request))
    )


_HOST_MEMORY_PER_NODE = translated("{size} GiB of host memory per node")
_PLUS_HOST_MEMORY = translated("in any case, also {size} GiB of host memory per node")
_NVME_PER_NODE = translated("{size} GiB of NVMe per node")
_PLUS_NVME = translated("in any case, also {size} GiB of NVMe per node")


def _changes_to_fit(choice: Choice, request: PlanRequest) -> list[Text]:
    """Changes that would make it fit."""
    machine = request.machine
    cures = []
    if choice.room.insufficient_memory == "engine":
        cures.append(translated("an engine on separate GPUs (--engine server)"))
    if choice.room.insufficient_memory == "accelerator":
        needed = choice.reserved * (1 + UNCERTAINTY_BY_SOURCE[choice.source])
        larger = _next_larger_accelerator(machine.accelerator, needed)
        if larger is not None:
            cures.append(translated("it would fit on {name}").format(name=larger.name))
        growing = sum(choice.by_category.get(name, 0.0) for name in ("activations", "temporary"))
        capacity = machine.accelerator.total_bytes - machine.accelerator.allowance_bytes
        share = (growing - (needed - capacity)) / growing if growing else 0.0
        shorter = int(request.seq_len * share) // 256 * 256
        if shorter >= 256:
            cures.append(translated("sequences up to about {length} tokens").format(length=shorter))
        count = _gpus_needed(choice, request, needed, capacity)
        if count is not None:
            cures.append(translated("{count} GPUs").format(count=count))
        if not cures:
            cures.append(
                translated("a strategy that keeps less on the GPU, or fewer trainable parameters (--tune lora)")
            )
    if choice.room.host is not None and choice.room.host < 0:
        assert machine.host_bytes is not None
        needed = machine.host_bytes - choice.room.host / (1 - HOST_RESERVE_SHARE)
        text = _PLUS_HOST_MEMORY if cures else _HOST_MEMORY_PER_NODE
        cures.append(text.format(size=math.ceil(needed / GIB)))
    if choice.room.nvme is not None and choice.room.nvme < 0:
        text = _PLUS_NVME if cures else _NVME_PER_NODE
        cures.append(text.format(size=math.ceil(choice.nvme * machine.count / GIB)))
    return cures


def _gpus_needed(choice: Choice, request: PlanRequest, needed_bytes: float, capacity_bytes: float) -> int | None:
    """How many GPUs would suffice, in whole nodes; None if what isn't partitioned is too large by itself."""
    stages = {0: (), 1: ("optimizer",), 2: ("gradients", "optimizer"), 3: ("parameters", "gradients", "optimizer")}
    partitioned = sum(choice.by_category.get(name, 0.0) for name in stages[choice.strategy.family.zero])
    room = capacity_bytes - (needed_bytes - partitioned)
    if partitioned <= 0 or room <= 0 or choice.strategy.family.replicas > 1:
        return None
    node = request.machine.count
    count = math.ceil(request.world_size * partitioned / room / node) * node
    return count if count <= _MAX_GPUS else None


def _next_larger_accelerator(accelerator: Accelerator, needed_bytes: float) -> Accelerator | None:
    """The smallest accelerator of the same kind with at least this much memory."""
    fitting = [
        one
        for one in all_accelerators()
        if one.device_type == accelerator.device_type and one.total_bytes - one.allowance_bytes >= needed_bytes
    ]
    return min(fitting, key=lambda one: one.total_bytes, default=None)
