from collections.abc import Iterator

from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.log.match import collapse_whitespace, first_match, matched_text
from gonogo.evidence.log.truncated_traceback import find_truncated_error
from gonogo.hazards.autograd._never_used import unused_layers
from gonogo.hazards.facts.training_script import DDP, creating_calls, first_argument, run_mentions
from gonogo.hazards.rule import (
    Certainty,
    Finding,
    Findings,
    Fix,
    Hazard,
    Pattern,
    RehearsalRecord,
    Run,
    Script,
    Text,
    translated,
)

_UNUSED_PARAMETERS_MESSAGES = (
    "Expected to have finished reduction in the prior iteration",
    "your module has parameters that were not used in producing loss",
    "module has parameters that were not used in producing",
    "did not receive grad for rank",
)
_ZERO_MESSAGES = ("This assert indicates that your module", "enable ignore_unused_parameters option")
"""The corresponding messages of DeepSpeed's ZeRO, which belong to another hazard."""
_PARAMETER_INDICES_PATTERN = Pattern(r"did not receive grad for rank \d+: ((?:[\w.]+[, ]*){1,40})")

# Code that tells DDP about unused parameters, or accesses modules other than by name.
_EXEMPTION_MARKERS = (
    *(b"find_unused_parameters", b"_set_static_graph", b"requires_grad", b"getattr(", b".children()", b".modules()"),
    *(b"named_children", b"named_modules", b"_modules", b"register_forward", b"Join("),
)


class DdpUnusedParameters(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A layer that a module builds and the project never uses again, in a model under plain DDP."""
        if b"DistributedDataParallel" not in script.source.data or run_mentions(run, script, *_EXEMPTION_MARKERS):
            return
        for call in script.calls(DDP):
            if call.has_unknown_kwargs or not call.keyword("static_graph").absent:
                continue
            made = creating_calls(script, first_argument(call, "module"))
            for owner, layer, statement in unused_layers(script, run, {one.name for one in made}):
                yield self.finding(
                    self.texts["cause_in_script"].format(owner=owner.name, layer=layer),
                    cure=(
                        self.texts["cure"].format(layer=layer),
                        translated("If the layer is used only in some steps, set find_unused_parameters=True"),
                    ),
                    spans=(owner.script.place(statement).span(), call.place.span(translated("wrapped here"))),
                    parameter=f"{layer}.weight",
                )

    def rehearsed_fixes(self, finding: Finding, record: RehearsalRecord, run: Run) -> Iterator[Fix]:
        """Turn on DDP's ``find_unused_parameters``."""
        for script in run.scripts:
            for call in script.calls(DDP):
                edit = script.setting_keyword(call, "find_unused_parameters", "True")
                yield self.fix(self.texts["find_unused_fix"], edit, safe=False)

    def in_log(self, log: FailureLog) -> Findings:
        """DDP's error, with the parameters if it prints their names or indices."""
        if any(log.has(words) for words in _ZERO_MESSAGES):
            return
        evidence = first_match(log, *_UNUSED_PARAMETERS_MESSAGES)
        certainty = Certainty.CERTAIN if evidence else Certainty.LIKELY
        if evidence is None:  # the two calls in which DDP checks whether the previous step's reduction has finished
            evidence = find_truncated_error(
                log,
                ("parallel/distributed", "self.reducer._rebuild_buckets("),
                ("parallel/distributed", "self.reducer.prepare_for_"),
                max_frames=1,
            )
        if evidence is None:
            return
        listed = first_match(log, "did not receive grad for rank")
        found = _PARAMETER_INDICES_PATTERN.search(matched_text(log, listed)) if listed else None
        which = collapse_whitespace(found.group(1)).partition("In addition")[0][:200].strip(", ") if found else ""
        numbered = which.replace(" ", "").isdecimal()
        yield self.log_finding(
            evidence,
            self.texts["cause_in_log"].format(
                which=Text(f" (of index {which})", f"（序号为 {which}）")
                if numbered
                else Text(f" ({which})", f"（{which}）")
                if which
                else ""
            ),
            certainty=certainty,
        )
