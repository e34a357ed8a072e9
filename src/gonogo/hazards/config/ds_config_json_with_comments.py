from gonogo.evidence.document.json_problems import ConfigProblem
from gonogo.hazards.facts.deepspeed_settings import is_read_as_json
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Edit, Findings, Hazard, Run, translated


def _comment_removal_edit(problem: ConfigProblem) -> Edit:
    """Edit that removes a comment, the blanks before it, and its line if nothing else is on it."""
    place = problem.place
    data, start, end = place.source.data, place.start, place.end
    line = place.source.line_start(place.line)
    while start > line and data[start - 1 : start] in (b" ", b"\t"):
        start -= 1
    if start == line and data[end : end + 1] in (b"\n", b""):
        end = min(end + 1, len(data))
    return place.source.place(start, end).edit("")


class DsConfigJsonWithComments(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Syntax that Hjson accepts but Python's json does not, unless DeepSpeed alone reads the file."""
        found = [one for one in config.problems if one.hjson_accepts and not one.json_accepts]
        if not found or any(not one.hjson_accepts and not one.json_accepts for one in config.problems):
            return
        by_json = is_read_as_json(run)
        if by_json is False:
            return
        repairs = [_comment_removal_edit(one) if one.kind == "comment" else one.repair for one in found]
        filled_in = any(field.value == "auto" for _, field in config.entries())
        yield self.finding(
            self.texts["cause"].format(
                what=found[0].message,
                line=found[0].place.line,
                reader=translated("transformers and accelerate read the file"),
            ),
            # Only transformers and accelerate resolve "auto".
            certainty=Certainty.CERTAIN if by_json else Certainty.LIKELY if filled_in else Certainty.POSSIBLE,
            cure=translated("Turn the file into plain JSON: {count} place(s) to change").format(count=len(found)),
            spans=tuple(one.place.span(one.message) for one in found[:8]),
            fixes=self.fix(
                translated("turn the file into plain JSON"), *(repair for repair in repairs if repair is not None)
            )
            if all(repair is not None for repair in repairs)
            else None,
        )
