from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.rehearsal.failures import (
    failed_ranks,
    failure_places,
    frame_spans,
    innermost_frame,
    path_ends_with,
)
from gonogo.hazards.facts.drawn_weights import (
    abbreviated_names,
    find_load_report,
    find_longer_name_in_checkpoint,
    is_lost_in_conversion,
)
from gonogo.hazards.facts.installed import describe_package, package_version_span, version_fixes
from gonogo.hazards.facts.zero_usage import stage_span
from gonogo.hazards.rule import Certainty, Environment, Findings, Hazard, Pattern, RehearsalRecord, Run, translated
from gonogo.hazards.zero3._zero3_in_log import is_under_zero3

_RAISING_VERSIONS = ">=5.1,<5.2"
_AFFECTED_VERSIONS = ">=5.0,<5.2"
_FIXED_VERSIONS = ">=5.2"

_CONVERSION_FAILED_PATTERN = Pattern(r"Failed to apply weight conversion for '([\w.]+)'")
_UNPACK_ERROR_PATTERN = Pattern(r"not enough values to unpack \(expected 2, got 1\)")
_DEEPSPEED_INTEGRATION_PATH = "transformers/integrations/deepspeed.py"


class Zero3MoeWeightsNotConverted(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """The affected releases of transformers, ZeRO-3 and a mixture of experts."""
        model = run.model
        if run.zero_stage != 3 or model is None or not model.has_experts:
            return
        if environment.within("transformers", _AFFECTED_VERSIONS) is not True:
            return
        raises = environment.within("transformers", _RAISING_VERSIONS) is True
        yield self.finding(
            translated("{transformers} {then} when {model}, a mixture of experts, is loaded under ZeRO-3.").format(
                transformers=describe_package(environment, "transformers"),
                model=model.name,
                then=translated("fails to merge the weights of the experts")
                if raises
                else translated("leaves all weights but the experts' at random values, and raises no error"),
            ),
            certainty=Certainty.LIKELY if model.config is not None else Certainty.POSSIBLE,
            spans=(package_version_span(environment, "transformers"), run.arguments.model.span(), stage_span(run)),
            fixes=version_fixes(environment, "transformers", _FIXED_VERSIONS),
        )

    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """Weights that transformers 5.0 fails to load; the error that 5.1 raises."""
        for failed in failed_ranks(record):
            failure = failed.failure
            inside = any(path_ends_with(frame, _DEEPSPEED_INTEGRATION_PATH) for frame in failure.frames)
            if (
                inside
                and _CONVERSION_FAILED_PATTERN.search(failure.message)
                and _UNPACK_ERROR_PATTERN.search(failure.message)
            ):
                yield self.finding(spans=failure_places(failure), ranks=failed.ranks)
        losing = [
            (rank, drawn) for rank in record.ranks for drawn in rank.drawn_weights if is_lost_in_conversion(drawn, rank)
        ]
        for rank, lost in losing[:1]:
            yield self.finding(
                self.texts["cause_in_rehearsal"].format(
                    version=rank.versions["transformers"],
                    model=lost.model,
                    count=len(lost.held),
                    source=lost.source,
                    names=abbreviated_names(lost.held),
                ),
                spans=frame_spans((innermost_frame(lost.frames, "user"), None)),
                ranks=tuple(dict.fromkeys(rank.rank for rank, _ in losing)),
            )

    def in_log(self, log: FailureLog) -> Findings:
        """The error of 5.1; the load report of 5.0 for a mixture of experts that lacks much more than a head."""
        on = is_under_zero3(log)
        if on is False:
            return
        for error in log.errors_of("RuntimeError", says=_CONVERSION_FAILED_PATTERN):
            of_zero3 = error.passes(_DEEPSPEED_INTEGRATION_PATH)
            if _UNPACK_ERROR_PATTERN.search(error.message) and (of_zero3 or on):
                yield self.log_finding(
                    error, self.texts["cause"], certainty=Certainty.CERTAIN if of_zero3 else Certainty.LIKELY
                )
                return
        reported = find_load_report(log)
        release = log.setup.release_numbers("transformers")
        if reported is None or not on or (release is not None and release[:2] != (5, 0)):
            return
        report, rows = reported
        if "Moe" not in report.match.group(1) and not any(".experts" in row for row in rows):
            return
        # If the checkpoint has the weights under longer names, the names are the cause.
        lost = any("embed_tokens" in row or ".experts" in row for row in rows)
        if lost and find_longer_name_in_checkpoint(log, rows) is None:
            yield self.log_finding(report, certainty=Certainty.LIKELY, confirm=self.texts["confirm"])
