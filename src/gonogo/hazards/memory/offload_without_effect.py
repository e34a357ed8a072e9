from collections.abc import Iterator

from gonogo.evidence.guarded.ends import rank_file_span
from gonogo.evidence.guarded.records import PlacedTensors
from gonogo.evidence.rehearsal.failures import first_few_names
from gonogo.finding.as_run import AsRun
from gonogo.finding.words import size
from gonogo.hazards.facts.as_run import facts_of_ranks_with_steps
from gonogo.hazards.rule import Certainty, Findings, GuardedRun, Hazard, RehearsalRecord, Text, translated

_TENSOR_PLACE_LABELS = {
    "parameter": translated("parameters"),
    "buffer": translated("buffers"),
    "optimizer-state": translated("optimizer states"),
    "zero-partition": translated("ZeRO's partitions of the parameters"),
    "fp32-partition": translated("fp32 partitions of the parameters"),
    "master-weights": translated("the fp32 master weights"),
}


class OffloadWithoutEffect(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """States seen on the GPU after a step, although the resolved config offloads them."""
        for rank, run in facts_of_ranks_with_steps(record):
            section = (rank.deepspeed_config or {}).get("zero_optimization")
            for what, where in _offloaded_but_on_gpu(section if isinstance(section, dict) else {}, run):
                yield self.finding(
                    self.texts["cause_in_rehearsal"].format(
                        steps=rank.steps, what=what, where=where, stage=run.strategy, optimizer=run.optimizer
                    ),
                    certainty=Certainty.LIKELY,
                    ranks=(rank.rank,),
                )
                return

    def in_guarded_run(self, run: GuardedRun) -> Findings:
        """Placements recorded on a GPU where the host was expected."""
        for rank in run.ranks:
            for census in rank.placements:
                wrong = [place for place in census.misplaced if (place.expected or "").startswith("cpu")]
                if not wrong:
                    continue
                yield self.finding(
                    self.texts["cause_in_guarded_run"].format(
                        held=_describe_placed_tensors(wrong),
                        parameters=census.offload_parameters,
                        optimizer=census.offload_optimizer,
                    ),
                    spans=rank_file_span(rank),
                    ranks=tuple(
                        one.rank
                        for one in run.ranks
                        if any(_is_any_expected_on_cpu(c.misplaced) for c in one.placements)
                    ),
                    parameter=wrong[0].names[0] if wrong[0].names else None,
                )
                return


def _offloaded_but_on_gpu(zero: dict[str, object], run: AsRun) -> Iterator[tuple[Text, str]]:
    """What the section offloads entirely, and the device on which most of it was seen instead."""
    for key, where, stages, what in (
        ("offload_optimizer", run.states_on, (1, 2, 3), _TENSOR_PLACE_LABELS["optimizer-state"]),
        ("offload_param", run.weights_on, (3,), _TENSOR_PLACE_LABELS["zero-partition"]),
    ):
        section = zero.get(key)
        if not isinstance(section, dict) or run.stage not in stages or section.get("device") not in ("cpu", "nvme"):
            continue
        in_part = section.get("ratio", 1) != 1 or section.get("super_offload") or zero.get("zenflow")
        if where and where[0] not in ("cpu", "nvme") and not in_part:
            yield what, where[0]


def _is_any_expected_on_cpu(places: tuple[PlacedTensors, ...]) -> bool:
    return any((place.expected or "").startswith("cpu") for place in places)


def _describe_placed_tensors(places: list[PlacedTensors]) -> Text:
    each = [(_TENSOR_PLACE_LABELS[place.what], place) for place in places]
    return Text(
        "; ".join(
            f"{place.count} {what.en} ({size(place.bytes)}: {first_few_names(place.names, 2)}) are on {place.device}"
            for what, place in each
        ),
        "；".join(
            f"{what.zh}中有 {place.count} 个（{size(place.bytes)}：{first_few_names(place.names, 2)}）"
            f"位于 {place.device}"
            for what, place in each
        ),
    )
