from gonogo.evidence.document.json_problems import ConfigProblem
from gonogo.hazards.facts.deepspeed_settings import is_read_as_json
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Edit, Findings, Fix, Hazard, Run, translated

_MAX_SHOWN = 8
_HJSON_READABLE_PROBLEMS = ("missing-comma", "python-literal", "unquoted", "control-character")


def _is_repairable(problem: ConfigProblem) -> bool:
    return problem.repair is not None or problem.json_accepts


def _hjson_repairs(config: DeepSpeedConfig) -> tuple[Edit, ...]:
    """Repairs of what Hjson accepts but Python's json does not; the file needs them too to become valid JSON."""
    others = (one for one in config.problems if one.hjson_accepts and not one.json_accepts)
    return tuple(one.repair for one in others if one.repair is not None)


class DsConfigNotJson(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """The first error that every parser rejects; the others are further spans of the same finding."""
        broken = [one for one in config.problems if not one.json_accepts and not one.hjson_accepts]
        if not broken:
            return
        first = broken[0]
        template = any(one.kind == "template" for one in broken)
        # Hjson reads many errors as unquoted strings up to the line's end; only Python's json certainly fails there.
        unsure = template or (
            is_read_as_json(run) is False and all(one.kind in _HJSON_READABLE_PROBLEMS for one in broken)
        )
        repairs = [one.repair for one in broken]
        fixes: tuple[Fix, ...] = ()
        if all(repair is not None for repair in repairs) and all(_is_repairable(one) for one in config.problems):
            title = translated("write it as JSON")
            fixes = (self.fix(title, *(one for one in repairs if one is not None), *_hjson_repairs(config)),)
        yield self.finding(
            translated("Line {line}: {what}. The run stops when it reads {name}.").format(
                line=first.place.line, what=first.message, name=config.name
            ),
            certainty=Certainty.POSSIBLE if unsure else Certainty.CERTAIN,
            cure=(
                translated("Correct line {line}: {what}").format(line=first.place.line, what=first.message),
                translated("Check the whole file with: python -m json.tool {name}").format(name=config.name),
            ),
            spans=tuple(one.place.span(one.message) for one in broken[:_MAX_SHOWN]),
            confirm=(self.texts["placeholder_confirm"],)
            if template
            else (self.texts["hjson_confirm"],)
            if unsure
            else (),
            fixes=fixes,
        )
