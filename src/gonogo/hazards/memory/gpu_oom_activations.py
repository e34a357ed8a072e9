from msgspec.structs import replace

from gonogo.evidence.rehearsal.failures import nested_value
from gonogo.finding.words import size
from gonogo.hazards.memory import _gpu_shortage as gpu
from gonogo.hazards.memory._logged_shortage import ACTIVATIONS, LoggedShortage, certainty_for_kind, find_logged_shortage
from gonogo.hazards.memory._megatron_remedies import shortage_findings
from gonogo.hazards.rule import Certainty, FailureLog, Findings, Hazard, RehearsalRecord, Text, translated

_LOG_CURES = (
    translated("Turn on gradient checkpointing if it is off (gradient_checkpointing=True)"),
    translated(
        "Lower per_device_train_batch_size, to 1 if need be, and raise gradient_accumulation_steps in proportion"
    ),
    translated("Shorten the longest samples (max_length, cutoff_len); they, not the average ones, set the peak"),
    translated(
        "If memory ran out in the loss or the attention: set use_liger_kernel=True, which does not materialize "
        'all logits; attn_implementation="sdpa" or "flash_attention_2"'
    ),
)


class GpuOomActivations(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """A shortage in which activations and temporaries outweigh the model states."""
        yield from shortage_findings(self, record, self._remedies, of_model_states=False)

    def in_log(self, log: FailureLog) -> Findings:
        """An out-of-memory error in a forward, a loss or a backward, or after steps that went well."""
        short = find_logged_shortage(log)
        certainty = certainty_for_kind(short, ACTIVATIONS)
        if short is None or certainty is None:
            return
        told = short.kind != ACTIVATIONS or bool(short.activity_cures)
        finding = self.log_finding(
            short.evidence,
            (self.texts["cause"] if told else self.texts["cause_by_phase"]).format(
                sizes=short.sizes, where=short.where, phase=short.phase
            )
            if certainty is not Certainty.POSSIBLE
            else translated("{sizes}; possibly filled by activations: the log doesn't show what fills it.").format(
                sizes=short.sizes
            ),
            certainty=certainty,
            title=self.title if told else self.texts["title_by_phase"],
            cure=(
                *short.sharing_and_fragmentation_cures,
                *(short.activity_cures if short.kind == ACTIVATIONS else ()),
                *_log_cures(short),
            ),
        )
        yield finding if short.kind == ACTIVATIONS else replace(finding, spans=())  # the place is about another kind

    def _remedies(self, gpu_shortage: gpu.GpuShortage) -> list[gpu.MemoryRemedy]:
        if gpu_shortage.shortage.phase == "evaluate":
            return [gpu.MemoryRemedy(self.texts["evaluation_cure"], None)]
        remedies = [
            gpu.MemoryRemedy(
                translated("Turn on gradient checkpointing if it is off (gradient_checkpointing=True)"), None
            )
        ]
        room = gpu_shortage.shortage.capacity_bytes - (gpu_shortage.needed_bytes - gpu_shortage.activations)
        batch = nested_value(gpu_shortage.rank.deepspeed_config, "train_micro_batch_size_per_gpu")
        batch = batch if isinstance(batch, int) else 1
        if batch > 1:
            fits = max(1, min(batch - 1, room * batch // gpu_shortage.activations))
            remedies.append(
                gpu.MemoryRemedy(
                    Text(
                        f"Micro-batch {fits} instead of {batch} (per_device_train_batch_size), with gradient "
                        "accumulation raised in proportion",
                        f"micro-batch 由 {batch} 改为 {fits}（per_device_train_batch_size），并按比例增加梯度累积",
                    ),
                    gpu_shortage.activations * (batch - fits) // batch,
                )
            )
        if 0 < room < gpu_shortage.activations:
            percent = 100 * room // gpu_shortage.activations
            remedies.append(
                gpu.MemoryRemedy(
                    Text(
                        f"A sequence of at most {percent} % of the present length: activations have {size(room)} of "
                        f"the {size(gpu_shortage.activations)} that they take now",
                        f"序列长度不超过现在的 {percent} %：激活现占 {size(gpu_shortage.activations)}，"
                        f"可用 {size(room)}",
                    ),
                    None,
                )
            )
        remedies.append(gpu.MemoryRemedy(self.texts["fused_loss_cure"], None))
        remedies.append(gpu.larger_device_remedy(gpu_shortage))
        return remedies


def _log_cures(logged_shortage: LoggedShortage) -> tuple[Text, ...]:
    """General cures, without those already given for the place."""
    return _LOG_CURES[:-1] if logged_shortage.activity_cures and logged_shortage.kind == ACTIVATIONS else _LOG_CURES
