from functools import partial

from gonogo.hazards.facts.launcher_arguments import local_rank_spellings
from gonogo.hazards.facts.program_parser import program_parser
from gonogo.hazards.rule import Certainty, FailureLog, Findings, Hazard, Launch, Pattern, Run, Text, translated

_HYPHENATED_LOCAL_RANK_PATTERN = Pattern(r"local-rank")
_OTHER_PARSERS = (
    *("*.HfArgumentParser", "fire.Fire", "*add_config_arguments_local_rank", "*.parse_args_into_dataclasses"),
)


class LauncherLocalRankArgument(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """The argument that the launcher passes, if the program's parser doesn't have it."""
        options = launch.launcher_options
        spellings = local_rank_spellings(launch, run)
        if not run.scripts or not spellings or launch.program_kind not in ("script", "module"):
            return
        visible = program_parser(run)
        accepts = visible.may_accept if visible is not None else partial(_accepts_argument, run)
        if any(accepts(spelling) for spelling in spellings):  # of two, the torch that is not known decides
            return
        passed = spellings[0]
        entry = run.scripts[0]
        parsers = [call for script in run.scripts for call in script.calls("argparse.ArgumentParser")]
        if visible is None:
            parses = [call for script in run.scripts for call in script.calls("*.parse_args")]
            if not parsers or not parses:
                return
            if any(next(script.calls(*_OTHER_PARSERS), None) is not None for script in run.scripts):
                return
            if any(b"parse_known_args" in script.source.data for script in run.scripts):
                return
        known = "--local_rank" if passed == "--local-rank" else "--local-rank"
        yield self.finding(
            translated("{launcher} adds {passed}=N to the arguments of {path}, whose parser {knows}.").format(
                launcher=launch.launcher,
                passed=passed,
                path=entry.source.path,
                knows=Text(f"has only {known}, another name", f"只有 {known}，是另一个名称")
                if _accepts_argument(run, known)
                else translated("has no such argument"),
            ),
            certainty=Certainty.LIKELY if visible is None else Certainty.CERTAIN,
            cure=(
                self.texts["no_local_rank_cure"] if launch.launcher == "deepspeed" else self.texts["torchrun"],
                self.texts["accept_both_spellings"],
            ),
            spans=(launch.place.span(), parsers[0].place.span()),
            fixes=self.fix(translated("keep the launcher from passing --local_rank"), options.adding("--no_local_rank"))
            if launch.launcher == "deepspeed" and options.end is not None and options.end.source.writable
            else None,
        )

    def in_log(self, log: FailureLog) -> Findings:
        """The parser's error about that argument."""
        found = log.find(self.patterns["unrecognized_local_rank"])
        if found is None:
            return
        hyphen = _HYPHENATED_LOCAL_RANK_PATTERN.search(found.text) is not None
        yield self.log_finding(
            found,
            self.texts["cause"].format(argument="--local-rank" if hyphen else "--local_rank"),
            cure=(self.texts["torchrun"], self.texts["no_local_rank_cure"], self.texts["accept_both_spellings"]),
        )


def _accepts_argument(run: Run, argument: str) -> bool:
    """Whether a parser in the run's scripts has the argument."""
    for script in run.scripts:
        if b"local" not in script.source.data:
            continue
        for call in script.calls("*.add_argument"):
            if any(call.argument(index).string == argument for index in range(4)):
                return True
    return False
