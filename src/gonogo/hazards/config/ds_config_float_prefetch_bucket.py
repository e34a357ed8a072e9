import ast
import math
from functools import partial

from gonogo.evidence.log.failure_log import FailureLog, LoggedError
from gonogo.evidence.log.line import LogLine
from gonogo.evidence.log.match import first_match, matched_text
from gonogo.hazards.facts.training_framework import fix_with_edits, uses_trainer
from gonogo.hazards.rule import (
    Certainty,
    DeepSpeedConfig,
    Finding,
    Findings,
    Hazard,
    Pattern,
    Run,
    Script,
    Severity,
    Text,
    translated,
)

_KEY = "stage3_prefetch_bucket_size"
_NOT_INTEGER = "Input should be a valid integer, got a number with a fractional part"
_INPUT_VALUE_PATTERN = Pattern(r"input_value=(\d{1,15}\.\d{1,12})")
_SIZE_KEYS = (
    *(_KEY, "stage3_param_persistence_threshold", "stage3_max_live_parameters", "stage3_max_reuse_distance"),
    *("reduce_bucket_size", "allgather_bucket_size", "sub_group_size"),
)


class DsConfigFloatPrefetchBucket(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """A size with a fraction in the config, or one that an older transformers computes for "auto"."""
        checked = run.environment.within("deepspeed", ">=0.15")
        if checked is False:
            return
        for name in _SIZE_KEYS:
            field = config.raw("zero_optimization", name)
            value = field.value if field.known else None
            if not isinstance(value, float) or not abs(value) < 1e18 or value == int(value):
                continue
            yield self.finding(
                translated("{name} is {value}: DeepSpeed 0.15 and newer accept only an integer.").format(
                    name=name, value=value
                ),
                certainty=Certainty.CERTAIN if checked else Certainty.LIKELY,
                cure=(
                    translated("Set it to {whole}, without a fraction").format(whole=int(value)),
                    translated('Or pip install "deepspeed<0.15"'),
                ),
                spans=(field.span(), run.environment.field("deepspeed").span(self.texts["integer_since_label"])),
                fixes=fix_with_edits(
                    translated("Round the size down to {whole}").format(whole=int(value)),
                    partial(config.replacing, "zero_optimization", name, value=int(value)),
                ),
                confirm=(translated("DeepSpeed is 0.15 or later"),) if not checked else (),
            )
        if checked and config.zero_stage == 3 and uses_trainer(run) is not False:
            yield from self._computed_size_findings(config, run)

    def in_script(self, script: Script, run: Run) -> Findings:
        """A config built in code whose size is ``0.9 * hidden_size * hidden_size``."""
        checked = run.environment.within("deepspeed", ">=0.15")
        if checked is False or _KEY.encode() not in script.source.data:
            return
        for node in script.nodes(ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
                    continue
                name = key.value  # DeepSpeed ignores keys with dots, which only accelerate splits
                if name not in _SIZE_KEYS or not _is_fractional_product(value):
                    continue
                yield self.finding(
                    self.texts["cause_in_script"].format(name=name, code=ast.unparse(value)[:80]),
                    severity=Severity.ERROR if checked else Severity.WARNING,
                    cure=translated("Wrap the product in int(...)"),
                    spans=(
                        script.place(value).span(),
                        run.environment.field("deepspeed").span(self.texts["integer_since_label"]),
                    ),
                    fixes=fix_with_edits(
                        translated("Wrap the product in int(...)"),
                        partial(script.replacing, value, f"int({script.place(value).text})"),
                    ),
                    confirm=translated("DeepSpeed is 0.15 or later, and the hidden size is not a multiple of 10"),
                )

    log_words = (_KEY, "DeepSpeedZeroConfig", "int_from_float")

    def in_log(self, log: FailureLog) -> Findings:
        """pydantic's error about the value; if only a part of the log is shown, the value itself decides."""
        evidence = first_match(log, "int_from_float", _NOT_INTEGER)
        if evidence is not None:
            message = matched_text(log, evidence)
            value = _INPUT_VALUE_PATTERN.search(message)
            named = log.has(_KEY)
            if named or (value and _is_nine_tenths_of_square(float(value.group(1)))):
                yield self._build_finding(evidence, value.group(1) if value else None, Certainty.CERTAIN)
            elif log.has("DeepSpeedZeroConfig") or "deepspeed" in message.lower():
                yield self._build_finding(evidence, value.group(1) if value else None, Certainty.LIKELY)
            return
        if log.has("int_parsing"):  # an "auto" that was never filled in is another error
            return
        if bare := first_match(log, "validation error for DeepSpeedZeroConfig"):
            yield self._build_finding(
                bare, None, Certainty.LIKELY if _KEY in matched_text(log, bare) else Certainty.POSSIBLE
            )

    def _build_finding(self, evidence: LoggedError | LogLine, value: str | None, certainty: Certainty) -> Finding:
        return self.log_finding(
            evidence,
            self.texts["refused_in_log_cause"].format(
                value=Text(f", and was given {value}", f"，却得到 {value}") if value else ""
            ),
            cure=(
                self.texts["cure"].format(value=int(float(value)) if value else 15000000),
                translated('Or upgrade transformers, or pip install "deepspeed<0.15"'),
            ),
            certainty=certainty,
            confirm=()
            if certainty is Certainty.CERTAIN
            else (translated("The full error names stage3_prefetch_bucket_size"),),
        )

    def _computed_size_findings(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """transformers before 4.44 computes 0.9 * hidden_size², which is an integer only for some sizes."""
        if not config.is_auto("zero_optimization", _KEY) or not run.environment.within("transformers", "<4.44"):
            return
        hidden = run.model.hidden_size if run.model is not None else None
        if hidden is not None and hidden % 10 == 0:
            return
        field = config.raw("zero_optimization", _KEY)
        value = 0.9 * hidden * hidden if hidden is not None else None
        whole = int(value) if value is not None else 15_000_000
        versions = [run.environment.field(name) for name in ("transformers", "deepspeed")]
        yield self.finding(
            self.texts["computed_cause"].format(
                version=versions[0].get("<4.44"), value=f" = {value}" if value is not None else ""
            ),
            certainty=Certainty.CERTAIN if value is not None else Certainty.LIKELY,
            cure=(
                translated("Set it to an integer, such as {whole}").format(whole=whole),
                translated('Or upgrade transformers (>=4.44), or pip install "deepspeed<0.15"'),
            ),
            spans=(field.span(), *(version.span() for version in versions)),
            fixes=fix_with_edits(
                translated("Set the size to {whole}").format(whole=whole),
                lambda: config.replacing("zero_optimization", _KEY, value=whole),
                safe=value is not None,
            ),
        )


def _is_nine_tenths_of_square(value: float) -> bool:
    """True for 0.9 x hidden_size², the value that transformers computes."""
    side = round(math.sqrt(value / 0.9))
    return side >= 256 and abs(0.9 * side * side - value) < 0.01


def _is_fractional_product(node: ast.expr) -> bool:
    """Whether an expression is like ``0.9 * a * a``: a product with a fractional factor."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return False
    for side in (node.left, node.right):
        if isinstance(side, ast.Constant) and isinstance(side.value, float) and side.value % 1:
            return True
        if _is_fractional_product(side):
            return True
    return False
