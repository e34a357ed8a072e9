"""A node without enough host memory for its ranks: how certain that is, and what each remedy frees."""

from gonogo.evidence.rehearsal.failures import offload_device
from gonogo.evidence.rehearsal.host_memory import NodeHostMemory
from gonogo.evidence.rehearsal.record import (
    ALL_RANKS_READ_EVENT,
    FIRST_RANK_READS_ASSUMPTION,
    RankRecord,
    RehearsalRecord,
)
from gonogo.finding import Certainty, Text, translated
from gonogo.finding.words import size


def host_shortage_certainty(node: NodeHostMemory, limit: int) -> Certainty:
    if node.proven_bytes > limit:
        return Certainty.CERTAIN
    return Certainty.LIKELY if node.peak_bytes > limit else Certainty.POSSIBLE


def estimate_basis_text(node: NodeHostMemory) -> Text:
    if not node.is_estimated:
        return translated("All ranks of the node were rehearsed.")
    return translated(
        "{run} of the node's ranks {were} rehearsed; the other {rest} are assumed to hold {each} each."
    ).format(
        run=len(node.run),
        were="was" if len(node.run) == 1 else "were",
        rest=node.ranks - len(node.run),
        each=size((node.peak_bytes - sum(host.peak_bytes for _, host in node.run)) / (node.ranks - len(node.run))),
    )


def host_shortage_cures(record: RehearsalRecord, node: NodeHostMemory, missing_bytes: int) -> tuple[Text, ...]:
    rank, host = node.rank_with_highest_peak
    config = rank.deepspeed_config
    cures: list[Text] = []
    sharded_by_fsdp = rank.as_run is not None and "FSDP" in rank.as_run.strategy
    if host.peak_phase in ("load", "init") and ALL_RANKS_READ_EVENT in rank.events:
        cures.append(
            translated(
                "Install transformers below 5, which reads the weights on a node's first rank only; transformers 5 "
                "reads them on every rank, whatever cpu_ram_efficient_loading says"
            )
        )
    elif sharded_by_fsdp and host.peak_phase in ("load", "init") and FIRST_RANK_READS_ASSUMPTION not in rank.events:
        cures.append(
            translated(
                "Let one rank of each node load the weights (fsdp_cpu_ram_efficient_loading: true in accelerate's "
                "config, started by accelerate launch)"
            )
        )
    elif host.peak_phase == "load" and not sharded_by_fsdp:
        cures.append(
            translated(
                "Build TrainingArguments (or HfDeepSpeedConfig) before from_pretrained, so that ZeRO-3 partitions the "
                "model while it is loaded; load in bf16 (dtype=torch.bfloat16)"
            )
        )
    if host.peak_phase == "save" and sharded_by_fsdp:
        cures.append(
            translated(
                "Save shards instead of one state dict (fsdp_state_dict_type: SHARDED_STATE_DICT); merge them "
                "afterwards with accelerate merge-weights"
            )
        )
    elif host.peak_phase == "save":
        cures.append(
            translated(
                "Do not gather the model when saving (stage3_gather_16bit_weights_on_model_save: false); convert "
                "afterwards with zero_to_fp32.py"
            )
        )
    parameters = host.by_category.get("parameters", 0)
    if parameters and offload_device(config, "offload_param") == "cpu" and _has_room_on_gpu(rank, parameters):
        cures.append(
            translated(
                "Keep the parameters on the GPU, which has room for them (remove offload_param): frees {freed} per node"
            ).format(freed=size(parameters * record.ranks_per_node))
        )
    optimizer = host.by_category.get("optimizer", 0)
    if optimizer and offload_device(config, "offload_optimizer") == "cpu":
        cures.append(
            translated(
                "Offload the optimizer to NVMe (offload_optimizer: device nvme, nvme_path): frees up to {freed} "
                "per node"
            ).format(freed=size(optimizer * record.ranks_per_node))
        )
    cures.append(
        translated("Use nodes with at least {more} more memory, use more nodes, or train LoRA").format(
            more=size(missing_bytes)
        )
    )
    if node.is_estimated and all(run.local_rank == 0 for run, _ in node.run):
        cures.append(translated("For a more reliable total, rehearse another rank too: --ranks 0,1"))
    return tuple(cures)


def _has_room_on_gpu(rank: RankRecord, additional_bytes: int) -> bool:
    """True if the rank's own device has that much left at its peak."""
    return any(
        memory.device == rank.device
        and memory.shortage is None
        and memory.peak_reserved_bytes + additional_bytes <= memory.total_bytes - memory.allowance_bytes
        for memory in rank.devices
    )
