from gonogo.evidence.guarded.ends import rank_file_span
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.rehearsal.device_mismatch import device_mismatch
from gonogo.evidence.rehearsal.failures import first_few_names
from gonogo.evidence.rehearsal.record import RankRecord
from gonogo.hazards.facts.mismatch_in_log import MisplacedTensor, device_mismatches_in_training
from gonogo.hazards.facts.parameter_names import group_by_module
from gonogo.hazards.rule import Certainty, Findings, GuardedRun, Hazard, RehearsalRecord, Severity, translated


class ModuleLeftOnCpu(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """Parameters and buffers that were still on the CPU, unless a device mismatch ended the rank."""
        left = [rank for rank in record.ranks if rank.left_on_cpu and not _has_device_mismatch(rank)]
        if not left:
            return
        first = left[0]
        modules = group_by_module(place.name for place in first.left_on_cpu)
        yield self.finding(
            self.texts["cause_in_rehearsal"].format(
                count=len(first.left_on_cpu), device=first.device, modules=first_few_names(modules)
            ),
            certainty=Certainty.LIKELY,
            severity=Severity.WARNING,
            cure=(
                self.texts["cure_in_rehearsal"].format(module=first.left_on_cpu[0].name.rpartition(".")[0] or "…"),
                translated("Do not build the module if no batch uses it"),
            ),
            ranks=tuple(rank.rank for rank in left),
            module=first.left_on_cpu[0].name.rpartition(".")[0] or None,
            parameter=first.left_on_cpu[0].name,
        )

    def in_guarded_run(self, run: GuardedRun) -> Findings:
        """Parameters and buffers that the guard found on the CPU while the config wants them on the accelerator."""
        for rank in run.ranks:
            left = [
                place
                for census in rank.placements[-1:]
                for place in census.misplaced
                if place.device == "cpu" and place.what in ("parameter", "buffer")
            ]
            if not left:
                continue
            names = [name for place in left for name in place.names]
            modules = group_by_module(names)
            yield self.finding(
                self.texts["cause_in_guarded_run"].format(
                    count=sum(place.count for place in left),
                    device=left[0].expected or "?",
                    modules=first_few_names(modules),
                ),
                certainty=Certainty.LIKELY,
                severity=Severity.WARNING,
                cure=(
                    self.texts["cure_in_guarded_run"].format(
                        module=(names[0].rpartition(".")[0] if names else "") or "…"
                    ),
                    translated("Do not build the module if no batch uses it"),
                ),
                spans=rank_file_span(rank),
                ranks=tuple(
                    one.rank
                    for one in run.ranks
                    if any(place.device == "cpu" for census in one.placements[-1:] for place in census.misplaced)
                ),
                module=(names[0].rpartition(".")[0] or None) if names else None,
                parameter=names[0] if names else None,
                confirm=translated("The first batch that uses the module fails with a device mismatch"),
            )
            return

    def in_log(self, log: FailureLog) -> Findings:
        """A mismatch whose CPU operand is a weight, judged by the operator's argument."""
        for mismatch in device_mismatches_in_training(log):
            if mismatch.likely_tensor is not MisplacedTensor.WEIGHT:
                continue
            yield self.log_finding(
                mismatch.evidence,
                self.texts["cause_in_log"].format(mismatch=mismatch.sentence),
                certainty=Certainty.POSSIBLE,
                module=mismatch.module,
                confirm=translated("{n for n, p in model.named_parameters() if p.device.type == 'cpu'} names the part"),
            )


def _has_device_mismatch(rank: RankRecord) -> bool:
    return rank.failure is not None and device_mismatch(rank.failure) is not None
