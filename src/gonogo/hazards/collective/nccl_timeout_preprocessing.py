import ast

from gonogo.evidence.field import whole_number
from gonogo.evidence.log.context import is_outside_training
from gonogo.evidence.log.failure_log import FailureLog, LineMatch
from gonogo.evidence.log.progress import is_data_preparation, last_activity
from gonogo.evidence.log.stall import STALL_WORDS, Stall, find_stall
from gonogo.hazards.facts.rank_tests import find_single_rank_test
from gonogo.hazards.rule import Certainty, Findings, Hazard, Launch, LogLine, Pattern, Run, Script, Severity, translated

_COMPLETE_BAR_PATTERN = Pattern(r"100%\|")
_TIMEOUT_AGE_BAR_PATTERN = Pattern(r"\b\d{1,2}%\|[^|]*\|.*\[(?:[13]0|60|1:00|2:00|3:00):\d\d<")
_PREPARATION_FRAMES = (
    "main_process_first", "torch_distributed_zero_first", "rank_zero_first", "zero_first", "preprocess_dataset",
    "get_dataset", "tokenize_dataset", "prepare_dataset", "_prepare_dataset",
)  # fmt: skip
_SLOW = ("*.map", "datasets.load_dataset", "*.snapshot_download", "*.filter")
_SECONDS_PER_UNIT = {"days": 86400, "hours": 3600, "minutes": 60, "seconds": 1, "milliseconds": 0.001}


class NcclTimeoutPreprocessing(Hazard):
    log_words = STALL_WORDS

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """A timeout for collectives that is shorter than data preparation usually takes."""
        field = run.arguments.get("ddp_timeout")
        seconds = whole_number(field)
        if seconds is None or not 0 < seconds < 600 or (whole_number(launch.world_size) or 2) < 2:
            return
        yield self.finding(
            self.texts["cause_in_launch"].format(seconds=seconds),
            title=self.texts["short_timeout_title"],
            severity=Severity.WARNING,
            cure=translated("Raise ddp_timeout beyond the longest preparation: --ddp_timeout 7200"),
            spans=field.span() or launch.place.span(),
        )

    def in_script(self, script: Script, run: Run) -> Findings:
        """A process group with a timeout of minutes, while one rank prepares the data and the others wait."""
        if b"timeout" not in script.source.data or b"barrier" not in script.source.data:
            return
        for call in script.calls("torch.distributed.init_process_group", "deepspeed.init_distributed"):
            given = call.keyword_node("timeout")
            seconds = _timedelta_seconds(script, given)
            if given is None or seconds is None or not 0 < seconds < 600:
                continue
            alone = next((work for work in script.calls(*_SLOW) if _runs_on_one_rank(script, work.node)), None)
            if alone is None:
                continue
            yield self.finding(
                self.texts["cause_in_script"].format(seconds=seconds, work=f"{alone.method}()"),
                title=self.texts["short_timeout_title"],
                severity=Severity.WARNING,
                cure=(
                    translated("Give the waiting ranks more time: timeout=timedelta(hours=2)"),
                    translated("Or prepare the data once before training, and load it from disk"),
                ),
                spans=(script.place(given).span(), alone.place.span(translated("one rank does this alone"))),
            )

    def in_log(self, log: FailureLog) -> Findings:
        """A timeout before training, with a progress bar or frames of data preparation, or an early barrier."""
        stall = find_stall(log)
        evidence, bar, certainty = (
            _find_cut_while_preparing(log) if stall is None else _find_timeout_evidence(log, stall)
        )
        if evidence is None:
            return
        yield self.log_finding(
            evidence,
            certainty=certainty,
            extra_evidence=(bar,) if bar is not None else (),
            confirm=translated("py-spy dump on rank 0 while the others wait shows map or the tokenizer"),
        )


def _find_timeout_evidence(
    log: FailureLog, stall: Stall
) -> tuple[LineMatch | LogLine | None, LogLine | None, Certainty]:
    """The timeout, the progress bar of the preparation, and the certainty."""
    activity = last_activity(log, stall.line)
    bar = activity if activity is not None and is_data_preparation(activity) else None
    if not stall.time_outs and stall.by_store is None:
        return None, None, Certainty.POSSIBLE
    if bar is not None and not _COMPLETE_BAR_PATTERN.search(bar.text):
        return stall.evidence, bar, stall.cap_certainty(Certainty.CERTAIN)
    if stall.is_early and (bar is not None or log.passes(*_PREPARATION_FRAMES)):
        return stall.evidence, bar, stall.cap_certainty(Certainty.LIKELY)
    if stall.is_early and stall.time_outs and stall.time_outs[0].numel in (None, 1):
        return stall.evidence, None, Certainty.POSSIBLE
    return None, None, Certainty.POSSIBLE


def _find_cut_while_preparing(log: FailureLog) -> tuple[LineMatch | None, None, Certainty]:
    """A truncated traceback after a progress bar of data preparation that ran as long as a default timeout."""
    if not log.truncated_errors or log.errors or is_outside_training(log):
        return None, None, Certainty.POSSIBLE
    bars = [found for found in log.find_all(_TIMEOUT_AGE_BAR_PATTERN) if is_data_preparation(found)]
    return bars[-1] if bars else None, None, Certainty.LIKELY


def _timedelta_seconds(script: Script, node: ast.expr | None) -> float | None:
    """The seconds of a ``timedelta`` with constant arguments."""
    if not isinstance(node, ast.Call) or script.qualified(node.func) != "datetime.timedelta" or node.args:
        return None
    numbers = [(script.field(each.value).number, _SECONDS_PER_UNIT.get(each.arg or "")) for each in node.keywords]
    if any(number is None or unit is None for number, unit in numbers):
        return None
    total = sum(float(number or 0) * float(unit or 0) for number, unit in numbers)
    return int(total) if total == int(total) else total


def _runs_on_one_rank(script: Script, node: ast.AST) -> bool:
    """Whether only one rank reaches a node."""
    return find_single_rank_test(script, node) is not None
