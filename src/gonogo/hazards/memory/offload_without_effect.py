from collections.abc import Iterator

from gonogo.evidence.guarded.ends import span_of_rank
from gonogo.evidence.guarded.records import PlacedTensors
from gonogo.evidence.rehearsal.failures import few
from gonogo.finding.as_run import AsRun
from gonogo.finding.words import size
from gonogo.hazards.facts.as_run import stepped_runs
from gonogo.hazards.rule import Certainty, Findings, GuardedRun, Hazard, RehearsalRecord, Severity, Text

_WHAT = {
    "parameter": Text("parameters", "参数"),
    "buffer": Text("buffers", "buffer"),
    "optimizer-state": Text("optimizer states", "优化器状态"),
    "zero-partition": Text("ZeRO's partitions of the parameters", "ZeRO 的参数分片"),
    "fp32-partition": Text("fp32 partitions of the parameters", "参数的 fp32 分片"),
    "master-weights": Text("the fp32 master weights", "fp32 主权重"),
}

_CURE = (
    Text(
        "See which config is in force: the engine prints it at the start (zero_optimization)",
        "确认实际生效的配置：engine 启动时会打印（zero_optimization）",
    ),
    Text(
        "Let DeepSpeed make the optimizer (an optimizer section, or the Trainer's), and load "
        "checkpoints by engine.load_checkpoint",
        "由 DeepSpeed 创建优化器（optimizer 配置段或 Trainer），用 engine.load_checkpoint 加载 checkpoint",
    ),
)


class OffloadWithoutEffect(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """States that were seen on the GPU after a step, where the resolved config offloads them."""
        for rank, run in stepped_runs(record):
            section = (rank.deepspeed_config or {}).get("zero_optimization")
            for what, where in _on_gpu(section if isinstance(section, dict) else {}, run):
                yield self.finding(
                    Text(
                        "After {steps} steps {what} are on {where}, though the config offloads them ({stage}, "
                        "{optimizer}).",
                        "{steps} 步之后，{what}位于 {where}，而配置要求卸载它们（{stage}，{optimizer}）。",
                    ).format(steps=rank.steps, what=what, where=where, stage=run.strategy, optimizer=run.optimizer),
                    certainty=Certainty.LIKELY,
                    severity=Severity.WARNING,
                    cure=_CURE,
                    ranks=(rank.rank,),
                )
                return

    def in_guarded_run(self, run: GuardedRun) -> Findings:
        """Places of the census where the host was expected and a GPU was found."""
        for rank in run.ranks:
            for census in rank.placements:
                wrong = [place for place in census.misplaced if (place.expected or "").startswith("cpu")]
                if not wrong:
                    continue
                yield self.finding(
                    Text(
                        "Before the first step, {held}, though the config offloads them (offload_param: {parameters}, "
                        "offload_optimizer: {optimizer}).",
                        "第一步之前，{held}，而配置要求卸载它们（offload_param：{parameters}，offload_optimizer："
                        "{optimizer}）。",
                    ).format(
                        held=_held_text(wrong), parameters=census.offload_parameters, optimizer=census.offload_optimizer
                    ),
                    certainty=Certainty.CERTAIN,
                    severity=Severity.WARNING,
                    cure=_CURE,
                    spans=span_of_rank(rank),
                    ranks=tuple(one.rank for one in run.ranks if any(_offended(c.misplaced) for c in one.placements)),
                    parameter=wrong[0].names[0] if wrong[0].names else None,
                )
                return


def _on_gpu(zero: dict[str, object], run: AsRun) -> Iterator[tuple[Text, str]]:
    """What the section offloads whole, and where most of it was seen instead."""
    for key, where, stages, what in (
        ("offload_optimizer", run.states_on, (1, 2, 3), _WHAT["optimizer-state"]),
        ("offload_param", run.weights_on, (3,), _WHAT["zero-partition"]),
    ):
        section = zero.get(key)
        if not isinstance(section, dict) or run.stage not in stages or section.get("device") not in ("cpu", "nvme"):
            continue
        in_part = section.get("ratio", 1) != 1 or section.get("super_offload") or zero.get("zenflow")
        if where and where[0] not in ("cpu", "nvme") and not in_part:
            yield what, where[0]


def _offended(places: tuple[PlacedTensors, ...]) -> bool:
    return any((place.expected or "").startswith("cpu") for place in places)


def _held_text(places: list[PlacedTensors]) -> Text:
    each = [(_WHAT[place.what], place) for place in places]
    return Text(
        "; ".join(
            f"{place.count} {what.en} ({size(place.bytes)}: {few(place.names, 2)}) are on {place.device}"
            for what, place in each
        ),
        "；".join(
            f"{what.zh}中有 {place.count} 个（{size(place.bytes)}：{few(place.names, 2)}）位于 {place.device}"
            for what, place in each
        ),
    )
