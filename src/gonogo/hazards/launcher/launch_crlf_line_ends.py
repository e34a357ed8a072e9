import re

from gonogo.hazards.facts.shell_lines import is_shell_script
from gonogo.hazards.rule import Certainty, Findings, Hazard, Launch, Run, translated


class LaunchCrlfLineEnds(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Carriage returns at the end of the command's lines."""
        source = launch.source
        if b"\r\n" not in source.data or not is_shell_script(source):
            return
        line = launch.place.line
        if not source.line_bytes(line).endswith(b"\r\n"):
            return
        places = [source.place(found.start(), found.start() + 1) for found in re.finditer(rb"\r\n", source.data)]
        # The first such line of the file, so that all launches in it share one finding.
        first = source.place(source.data.rfind(b"\n", 0, places[0].start) + 1, places[0].end)
        yield self.finding(
            self.texts["cause"].format(count=len(places), path=source.path),
            cure=translated("Give the file Unix line endings: sed -i 's/\\r$//' {path}").format(path=source.path),
            certainty=Certainty.CERTAIN if _carriage_return_has_effect(launch, len(places)) else Certainty.POSSIBLE,
            spans=(first.span(), launch.place.span()),
            fixes=self.fix(translated("remove the carriage returns"), *(place.edit("") for place in places)),
        )


def _carriage_return_has_effect(launch: Launch, lines: int) -> bool:
    """Whether a carriage return certainly changes the run: in a one-line command it may end a harmless word."""
    return lines > 1 or launch.place.text.rstrip("\r\n").endswith(".py")
