from gonogo.evidence.environment.compatibility import releases_with_model_type
from gonogo.evidence.log.failure_log import FailureLog, LoggedError
from gonogo.hazards.environment._model_names import MODEL_CLASS_PATTERN, MODEL_TYPE_PATTERN, model_type_label
from gonogo.hazards.environment._surroundings import (
    evidence_text,
    find_line_or_error,
    is_outside_training,
    truncated_tracebacks,
)
from gonogo.hazards.facts.installed import (
    certainty_of_package_versions,
    describe_package,
    package_version_span,
    pip_install,
    version_fixes,
)
from gonogo.hazards.rule import Certainty, Environment, Findings, Hazard, Pattern, Run, Text, translated

_MODEL_TYPE_PATTERN = Pattern(r"model type `([\w.-]+)`|Tokenizer class (\w+)")
_UNKNOWN_TOKENIZER_PATTERN = Pattern(r"Tokenizer class \w+ does not exist or is not currently imported")
_MODEL_TYPE_LOOKUP_PATTERN = Pattern(r"CONFIG_MAPPING\[|MODEL_TYPE|raise KeyError\(key\)")
_AUTO_CLASS_FRAMES = (
    "CONFIG_MAPPING",
    "configuration_auto.py",
    "auto_factory.py",
    "tokenization_auto.py",
    "processing_auto.py",
)


class TransformersVersionModelTypeUnknown(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """A model type, from config.json, that the installed transformers does not know yet."""
        kind = run.model.model_type if run.model is not None else None
        if run.model is None or kind is None or (run.model.config or {}).get("auto_map"):
            return
        known = releases_with_model_type(kind)
        if known is None:
            return
        if not known.oldest and environment.within("transformers", f"<{known.first}"):
            since, wanted = translated("has supported only since {first}"), f">={known.first}"
        elif known.removed is not None and environment.within("transformers", f">={known.removed}"):
            since = translated("dropped in {removed}")
            wanted = f">={known.first},<{known.removed}"
        else:
            return
        yield self.finding(
            self.texts["cause"].format(
                kind=kind,
                since=since.format(first=known.first, removed=known.removed or ""),
                installed=describe_package(environment, "transformers"),
            ),
            certainty=certainty_of_package_versions(environment, run, "transformers"),
            cure=(pip_install("transformers", wanted), self.cures[1]),
            spans=(package_version_span(environment, "transformers"), run.arguments.model.span(model_type_label(kind))),
            fixes=version_fixes(environment, "transformers", wanted),
        )

    def in_log(self, log: FailureLog) -> Findings:
        """transformers' error about the model type; a KeyError from its list of types; a missing model class."""
        outside = is_outside_training(log)
        if evidence := find_line_or_error(log, self.patterns["unknown_model_type"]):
            match = _MODEL_TYPE_PATTERN.search(evidence_text(evidence))
            yield self.log_finding(
                evidence,
                self._format_cause(next((group for group in match.groups() if group), "") if match else ""),
                certainty=Certainty.POSSIBLE if outside else Certainty.CERTAIN,
            )
            return
        for error in log.errors_of("KeyError"):
            certainty = _certainty_for_key_error(error)
            if certainty is not None:
                yield self.log_finding(
                    error,
                    self._format_cause(_key_of_error(error)),
                    certainty=Certainty.POSSIBLE if outside else certainty,
                    confirm=translated("The key is the model_type of the model's config.json"),
                )
                return
        cut = next((error for error, code in truncated_tracebacks(log) if _is_cut_in_type_lookup(error, code)), None)
        if cut is not None:
            certainty = Certainty.POSSIBLE if outside else Certainty.LIKELY
            yield self.log_finding(cut, self._format_cause(""), certainty=certainty)
            return
        evidence = find_line_or_error(log, _UNKNOWN_TOKENIZER_PATTERN) or find_line_or_error(
            log, self.patterns["missing_class"]
        )
        if evidence is None:
            return
        model = MODEL_CLASS_PATTERN.search(evidence_text(evidence))
        if model and model.group(1).startswith("Auto"):
            return  # not a model's own class: transformers 5 removed some of these
        if _UNKNOWN_TOKENIZER_PATTERN.search(evidence_text(evidence)) or model:
            yield self.log_finding(
                evidence,
                self._format_cause(model.group(1) if model else ""),
                certainty=Certainty.POSSIBLE if outside or log.has("transformers_modules") else Certainty.LIKELY,
                confirm=translated("config.json's transformers_version is newer than the installed one"),
            )

    def _format_cause(self, name: str) -> Text:
        return self.texts["older_than_model_cause"].format(name=f" {name}" if name else "")


def _key_of_error(error: LoggedError) -> str:
    line = error.message.partition("\n")[0].strip()
    return line.strip("'\"")


def _certainty_for_key_error(error: LoggedError) -> Certainty | None:
    """The certainty that the KeyError's key is a model type that transformers looked up."""
    key = _key_of_error(error)
    last = error.innermost
    if last is None:
        return Certainty.LIKELY if MODEL_TYPE_PATTERN.search(key) else None
    if "transformers_modules" in last.path:
        return None
    if error.passes(*_AUTO_CLASS_FRAMES[:2]):
        return Certainty.CERTAIN
    if error.passes(*_AUTO_CLASS_FRAMES[2:]) and "/transformers/" in last.path:
        return Certainty.LIKELY
    of_transformers = "/transformers/" in last.path or not last.function
    return Certainty.POSSIBLE if MODEL_TYPE_PATTERN.search(key) and of_transformers else None


def _is_cut_in_type_lookup(error: LoggedError, code: str) -> bool:
    """True if the traceback ends in transformers' lookup of the model type."""
    last = error.innermost
    return (
        last is not None and "configuration_auto" in last.path and _MODEL_TYPE_LOOKUP_PATTERN.search(code) is not None
    )
