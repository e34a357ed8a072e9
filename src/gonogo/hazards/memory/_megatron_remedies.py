"""The findings of a GPU shortage, with what frees memory in a run of Megatron-LM by its own arguments."""

from collections.abc import Callable

from msgspec import UNSET

from gonogo.finding.as_run import MegatronGroups
from gonogo.hazards.memory import _gpu_shortage as gpu
from gonogo.hazards.memory._gpu_shortage import GpuShortage, MemoryRemedy, larger_device_remedy
from gonogo.hazards.rule import Findings, Hazard, RehearsalRecord, translated


def shortage_findings(
    hazard: Hazard,
    record: RehearsalRecord,
    remedies: Callable[[GpuShortage], list[MemoryRemedy]],
    *,
    of_model_states: bool,
) -> Findings:
    """What a rehearsal ran out of, if it is of this kind; ``remedies`` are those of a run without Megatron."""
    for short in gpu.gpu_shortages(record, of_model_states=of_model_states):
        groups = megatron_groups_of(short)
        by_settings = remedies(short) if groups is None else megatron_remedies(short, groups)
        yield hazard.finding(
            gpu.shortage_cause(short),
            title=gpu.shortage_title(short, hazard.title),
            certainty=gpu.shortage_certainty(short),
            cure=gpu.ordered_remedies(short, [*gpu.fragmentation_remedies(short), *by_settings]),
            confirm=gpu.shortage_confirmations(short),
            spans=gpu.allocation_spans(short),
            ranks=short.ranks,
            module=short.shortage.module,
        )


def megatron_groups_of(gpu_shortage: GpuShortage) -> MegatronGroups | None:
    """Megatron-Core's groups, if its DDP or FSDP wraps the model that ran out of memory."""
    as_run = gpu_shortage.rank.as_run
    return None if as_run is None or as_run.megatron is UNSET else as_run.megatron


def megatron_remedies(gpu_shortage: GpuShortage, groups: MegatronGroups) -> list[MemoryRemedy]:
    """Remedies with what each frees at least, from the sizes of the groups and the categories.

    Twice the tensor-parallel size halves the gradients, and with sequence parallelism the activations too; twice the
    context-parallel size halves the activations. Of the parameters only an unknown part shrinks, since the category
    includes the optimizer's fp32 copies, which are partitioned already.
    """
    held = gpu_shortage.by_category
    gradients, optimizer, activations = (held.get(name, 0) for name in ("gradients", "optimizer", "activations"))
    as_run, record = gpu_shortage.rank.as_run, gpu_shortage.record
    remedies: list[MemoryRemedy] = []
    replicas = groups.data * groups.context
    if replicas > 1 and not groups.distributed_optimizer:
        remedies.append(
            MemoryRemedy(
                translated(
                    "Partition the optimizer states over the {count} data-parallel ranks (--use-distributed-optimizer)"
                ).format(count=replicas),
                optimizer * (replicas - 1) // replicas,
            )
        )
    if groups.data % 2 == 0 and 2 * groups.tensor <= record.ranks_per_node:
        remedies.append(
            MemoryRemedy(
                translated(
                    "Divide each layer among twice as many ranks (--tensor-model-parallel-size {size} "
                    "--sequence-parallel)"
                ).format(size=2 * groups.tensor),
                (gradients + activations) // 2,
            )
        )
    if groups.data % 2 == 0:
        remedies.append(
            MemoryRemedy(
                translated(
                    "Divide each sample's tokens among twice as many ranks (--context-parallel-size {size})"
                ).format(size=2 * groups.context),
                activations // 2,
            )
        )
    if as_run is not None and not as_run.recomputed and activations:
        remedies.append(
            MemoryRemedy(
                translated(
                    "Recompute the activations of as many layers as needed (--recompute-granularity full "
                    "--recompute-method block --recompute-num-layers N)"
                ),
                None,
            )
        )
    most = as_run.samples[1] if as_run is not None and as_run.samples else 1
    if most > 1:
        remedies.append(
            MemoryRemedy(
                translated("Use --micro-batch-size {fewer} instead of {most}").format(fewer=most // 2, most=most),
                activations * (most - most // 2) // most,
            )
        )
    remedies.append(larger_device_remedy(gpu_shortage))
    return [remedy for remedy in remedies if remedy.frees != 0]
