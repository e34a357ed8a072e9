"""The seconds of one optimizer step by plan's roofline, of a run that was rehearsed."""

from __future__ import annotations

from msgspec.structs import replace

from gonogo.evidence.environment.hardware import find_accelerator
from gonogo.evidence.rehearsal.failures import offload_device
from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.finding import Report
from gonogo.finding.errors import UserError
from gonogo.trials.plan.extend import work_of
from gonogo.trials.plan.roofline import NETWORK_BYTES, collective_seconds, step_time


def seconds_of_step(record: RehearsalRecord) -> float | None:
    """Seconds of the last whole step; None where the rehearsal did not come to one, or nothing was counted."""
    rank = record.ranks[0] if record.ranks else None
    if rank is None or rank.steps == 0:
        return None
    last = max((part.step for part in rank.work if part.phase == "step"), default=None)
    try:
        speed = find_accelerator(record.accelerator.name).speed
    except UserError:
        return None
    if last is None or speed is None:
        return None
    work = work_of([part for part in rank.work if part.step == last and part.phase in ("forward", "backward", "step")])
    link = speed.link_bytes if record.nodes == 1 else min(speed.link_bytes, NETWORK_BYTES)
    device = offload_device(rank.deepspeed_config, "offload_optimizer")
    share = rank.parameter_count / record.world_size if device is not None else 0.0
    return step_time(
        compute=work.seconds,
        communication=sum(
            collective_seconds(name, int(sent), record.world_size, link) for name, sent in work.sent.items()
        ),
        to_host_bytes=work.to_host,
        from_host_bytes=work.from_host,
        host_parameters=share,
        nvme_parameters=share if device == "nvme" else 0.0,
        ranks_per_node=record.ranks_per_node,
        nvme_drives=1,
        speed=speed,
    ).total


def with_step_time(report: Report, record: RehearsalRecord) -> Report:
    """The report of a rehearsal with what a step takes, where work was counted."""
    seconds = seconds_of_step(record)
    if report.rehearsal is None or not seconds:
        return report
    run = record.ranks[0].as_run
    tokens = None
    if run is not None and run.tokens and run.samples:
        tokens = run.tokens[1] * run.samples[1] * (run.accumulation[1] if run.accumulation else 1) / seconds
    rehearsal = replace(report.rehearsal, seconds_of_step=seconds, tokens_per_second_per_gpu=tokens)
    return replace(report, rehearsal=rehearsal)
