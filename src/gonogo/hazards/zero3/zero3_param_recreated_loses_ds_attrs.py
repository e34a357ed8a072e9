import ast

from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.hazards.facts.zero_usage import is_inside_module_class, source_text, stage_span
from gonogo.hazards.rule import Certainty, Finding, Findings, Hazard, Run, Script, translated
from gonogo.hazards.zero3._zero3_in_log import find_cut_traceback, find_error_or_line

_QUANTIZED_TYPES = ("Params4bit", "Int8Params")


class Zero3ParamRecreatedLosesDsAttrs(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A new ``nn.Parameter`` that is created in a forward, or assigned after ``deepspeed.initialize``."""
        if run.zero_stage != 3 or b"Parameter(" not in script.source.data:
            return
        for call in script.calls("torch.nn.Parameter", "torch.nn.parameter.Parameter"):
            statement = script.statement(call.node)
            if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Attribute):
                continue
            function = script.enclosing_function(call.node)
            built = next(
                (
                    one
                    for one in script.calls("deepspeed.initialize")
                    if script.enclosing_function(one.node) is function and one.line < call.line
                ),
                None,
            )
            in_forward = (
                function is not None and function.name == "forward" and is_inside_module_class(script, call.node)
            )
            if not in_forward and built is None:
                continue
            target = statement.targets[0]
            yield self.finding(
                self.texts["cause_in_script"].format(
                    target=source_text(script, target),
                    when=translated("in a forward") if in_forward else translated("after deepspeed.initialize"),
                ),
                cure=self.texts["cure"],
                spans=(
                    script.place(statement).span(),
                    built.place.span(translated("the engine is built here")) if built else None,
                    stage_span(run),
                ),
                confirm=translated("This code runs during training"),
            )

    def in_log(self, log: FailureLog) -> Findings:
        """A parameter (or module) that lacks the attributes that DeepSpeed sets."""
        on_module = False
        evidence = find_error_or_line(log, self.patterns["lost_attribute"], "AttributeError")
        if evidence is None:
            evidence, on_module = find_error_or_line(log, self.patterns["missing_ds_attribute"], "AttributeError"), True
        if evidence is None:
            evidence, on_module = (
                find_cut_traceback(log, "deepspeed/", code=self.patterns["ds_attribute_access"]),
                False,
            )
        if evidence is None:
            return
        if isinstance(evidence, LoggedError) and not evidence.type and evidence.innermost:
            read = self.patterns["ds_attribute_access"].search(evidence.innermost.code)
            yield self._build_finding(evidence, "Parameter", read.group(1) if read else "ds_id", Certainty.LIKELY)
            return
        text = evidence.message if isinstance(evidence, LoggedError) else evidence.text
        found = (self.patterns["missing_ds_attribute"] if on_module else self.patterns["lost_attribute"]).search(text)
        holder, attribute = (found.group(1), found.group(2)) if found else ("Parameter", "ds_id")
        if attribute == "ds_numel":
            certainty = Certainty.POSSIBLE  # just as likely a parameter that zero.Init never saw
        elif holder in _QUANTIZED_TYPES or on_module:  # a wrapper that answers for its module lacks them too
            certainty = Certainty.POSSIBLE
        else:
            certainty = Certainty.CERTAIN if attribute.startswith("ds_") else Certainty.LIKELY
        yield self._build_finding(evidence, holder, attribute, certainty)

    def _build_finding(
        self, evidence: LoggedError | LineMatch, owner: str, attribute: str, certainty: Certainty
    ) -> Finding:
        return self.log_finding(
            evidence,
            self.texts["cause"].format(holder=owner, attribute=attribute),
            certainty=certainty,
            confirm=self.texts["confirm"],
        )
