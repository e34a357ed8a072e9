import re
from collections.abc import Iterator, Sequence

from gonogo.evidence.rehearsal.life_table import life_report
from gonogo.evidence.rehearsal.result_table import result_report
from gonogo.finding.lives.life_report import BaseRow
from gonogo.finding.text import join_texts
from gonogo.hazards.rule import Certainty, Findings, Hazard, RehearsalRecord, Severity, Text, translated

_MAX_SHOWN = 3
_STAGES = {
    "resume": translated("the resumed run"),
    "convert": translated("the converter"),
    "merge": translated("the merge"),
    "serve": translated("the loaded model"),
}
_DRAWN = translated("a random generator")
_MESSAGES = {
    "other": translated(
        "{count} frozen weights of {stage} differ from those in training ({names}): they came from {before}, now from "
        "{after}."
    ),
    "applied-before": translated(
        "{count} frozen weights of {stage} already contain the adapter, which is applied twice ({names}): in training "
        "they came from {before}, now from {after}."
    ),
    "drawn": translated(
        "{count} frozen weights of {stage} are initialized at random, in whole or in part, and are in no checkpoint "
        "({names}): in training they came from {before}, now from {after}."
    ),
    "rounded": translated(
        "{count} frozen weights of {stage} are rounded differently than in training ({names}): {dtype_before} from "
        "{before}, now {dtype} from {after}. The adapter was trained with the rounding, so the result differs slightly."
    ),
}


_QUANTIZED_PATTERN = re.compile(r"(?:-(?:unsloth|bnb|4bit|8bit|awq|gptq|int4|int8|fp8))+$")
_CURES = {
    "other": translated(
        "Load the base model that the adapter was trained on ({before}); if that was merged or changed "
        "in memory, save it before an adapter is trained on it, and load it from there"
    ),
    "applied-before": translated("Save the merged model to another folder, and restore {after}"),
    "drawn": translated(
        "Put these layers into modules_to_save, give LoraConfig its task_type, and leave save_embedding_layers at "
        '"auto"; or save the base with them before an adapter is trained on it'
    ),
}


class AdapterOnAnotherBase(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """Frozen weights that a resumed run, a converter or a merge takes from elsewhere than the training run."""
        rows = list(_base_rows(record))
        if not rows:
            yield from self._base_name_findings(record)
        for row in rows:
            if row.status == "same" or (row.status == "drawn" and row.stage == "resume" and not row.before):
                continue  # drawn at each start: resume-weights-not-restored says so
            is_note = row.status == "rounded"
            before, after = _folders_text(row.before), _folders_text(row.after)
            cures = [_CURES[row.status].format(before=before, after=after)] if row.status in _CURES else []
            yield self.finding(
                _MESSAGES[row.status].format(
                    count=len(row.names), stage=_STAGES[row.stage], names=_names_text(row.names), before=before,
                    after=after, dtype_before=row.dtype_before, dtype=row.dtype,
                ),
                severity=Severity.NOTE if is_note else Severity.ERROR,
                certainty=Certainty.CERTAIN if row.is_certain else Certainty.LIKELY,
                cure=tuple(cures),
                ranks=tuple(rank.rank for rank in record.ranks),
            )  # fmt: skip

    def _base_name_findings(self, record: RehearsalRecord) -> Findings:
        """Adapters loaded onto a base model of another name than ``base_model_name_or_path`` in their config."""
        for attached in dict.fromkeys(one for rank in record.ranks for one in rank.attached_adapters):
            is_known = attached.same_weights is False
            if attached.same_weights or (
                not is_known and _normalized_model_name(attached.stated) == _normalized_model_name(attached.opened)
            ):
                continue
            names = {"adapter": attached.adapter, "before": attached.stated, "after": attached.opened}
            message = self.texts["other_weights"] if is_known else self.texts["other_name"]
            yield self.finding(
                message.format(**names),
                certainty=Certainty.CERTAIN if is_known else Certainty.POSSIBLE,
                cure=(self.texts["load_stated"].format(**names),),
                ranks=tuple(rank.rank for rank in record.ranks if attached in rank.attached_adapters),
            )


def _normalized_model_name(name: str) -> str:
    """The last part of a model name, without a suffix for its quantization."""
    return _QUANTIZED_PATTERN.sub("", name.rstrip("/").rpartition("/")[2].lower())


def _base_rows(record: RehearsalRecord) -> Iterator[BaseRow]:
    life, result = life_report(record), result_report(record)
    if life is not None and life.trains_on:
        yield from life.bases
    if result is not None:
        yield from result.bases


def _names_text(names: Sequence[str]) -> Text:
    shown = [Text(name, name) for name in names[:_MAX_SHOWN]]
    return join_texts([*shown, *([Text("…", "…")] if len(names) > _MAX_SHOWN else [])], comma_zh=", ")


def _folders_text(folders: Sequence[str]) -> Text:
    return join_texts([Text(folder, folder) for folder in folders], " + ", " + ") if folders else _DRAWN
