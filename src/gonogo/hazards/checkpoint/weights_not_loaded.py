from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.rehearsal.failures import frame_spans, innermost_frame
from gonogo.evidence.rehearsal.record import LoadedWeights
from gonogo.hazards.facts.drawn_weights import (
    abbreviated_names,
    find_longer_name_in_checkpoint,
    find_newly_initialized,
    is_lost_in_conversion,
)
from gonogo.hazards.rule import Certainty, Findings, Hazard, Pattern, RehearsalRecord, Severity, Text, translated

_MAX_NEW_SHARE = 0.5
"""A share of a model's parameters that no new head, projector or cross-attention reaches."""
_EXPERT_WEIGHTS_PATTERN = Pattern(r"\.experts\.(?:gate_up_proj|down_proj|gate_proj|up_proj|w[123])")


class WeightsNotLoaded(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """Weights that the checkpoint has but the model did not load; or a model mostly newly initialized."""
        lacking: dict[tuple[str, str], tuple[LoadedWeights, list[int]]] = {}
        for rank in record.ranks:
            for drawn in rank.drawn_weights:
                if not is_lost_in_conversion(drawn, rank) and (drawn.held or drawn.share > _MAX_NEW_SHARE):
                    lacking.setdefault((drawn.model, drawn.source), (drawn, []))[1].append(rank.rank)
        for drawn, ranks in lacking.values():
            yield self.finding(
                self._format_cause(drawn),
                certainty=Certainty.CERTAIN if drawn.held or drawn.named_instead else Certainty.LIKELY,
                spans=frame_spans((innermost_frame(drawn.frames, "user"), None)),
                ranks=tuple(dict.fromkeys(ranks)),
            )

    def in_log(self, log: FailureLog) -> Findings:
        """transformers' list of newly initialized weights, if it names the layers themselves."""
        for found, names in find_newly_initialized(log):
            body = [
                name
                for name in names
                if self.patterns["layer_weight"].search(name) and not self.patterns["new_by_design"].search(name)
            ]
            body += [name for name in names if _EXPERT_WEIGHTS_PATTERN.search(name)]
            if not body:
                continue
            whole = any(
                self.patterns["embedding_weight"].search(name) or _EXPERT_WEIGHTS_PATTERN.search(name) for name in names
            )
            yield self.log_finding(
                found,
                self.texts["cause"].format(
                    names=abbreviated_names(body),
                    instead=_name_in_checkpoint_clause(find_longer_name_in_checkpoint(log, names)),
                ),
                certainty=Certainty.LIKELY if whole else Certainty.POSSIBLE,
                severity=Severity.WARNING,
                confirm=translated("The first loss is near ln(vocabulary size), or 0 with a gradient norm of nan"),
            )
            return

    def _format_cause(self, loaded: LoadedWeights) -> Text:
        if loaded.held:
            return self.texts["same_names_cause"].format(
                model=loaded.model, count=len(loaded.held), source=loaded.source, names=abbreviated_names(loaded.held),
                percent=f"{loaded.share:.0%}",
            )  # fmt: skip
        return self.texts["without_weights_cause"].format(
            percent=f"{loaded.share:.0%}",
            model=loaded.model,
            source=loaded.source,
            names=abbreviated_names(loaded.missing),
            instead=_name_in_checkpoint_clause(loaded.named_instead),
        )


def _name_in_checkpoint_clause(name: str | None) -> Text:
    """A clause with the name that the checkpoint has instead; empty if it has none."""
    if name is None:
        return Text("", "")
    return translated("; the checkpoint has {name}").format(name=name)
