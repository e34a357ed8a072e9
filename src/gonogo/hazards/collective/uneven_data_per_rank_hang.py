import ast
from collections.abc import Iterator

from gonogo.evidence.log.failure_log import FailureLog, LineMatch
from gonogo.evidence.log.progress import nearly_finished_line
from gonogo.evidence.log.stall import STALL_WORDS, find_in_log_or_setup, find_stall
from gonogo.evidence.rehearsal.rank_divergence import RankDivergence, rank_divergence
from gonogo.evidence.script.identifiers import contains_words, last_name
from gonogo.hazards.facts.divergence_fixes import fix_divergent_loop
from gonogo.hazards.facts.rank_tests import contains_rank_name
from gonogo.hazards.facts.training_script import DDP, run_mentions
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
    Severity,
    translated,
)

_ITERABLE_DATASET_PATTERN = (
    r"(?i)IterableDataset|streaming[\"']?\s*[:=]\s*true|StreamingDataset|dispatch_batches|webdataset"
)
_EXHAUSTED_PATTERN = Pattern(r"Detected at least one rank that exhausted inputs")

# Code that makes the ranks stop together, or counts steps instead of data.
_STEP_ALIGNMENT_MARKERS = (
    b"Join(",
    b"join_uneven_inputs",
    b"drop_last",
    b"max_steps",
    b"total_steps",
    b"ReduceOp.MIN",
    b"accelerate",
    b"Trainer",
)


class UnevenDataPerRankHang(Hazard):
    log_words = STALL_WORDS

    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """Ranks that diverge after different numbers of batches or steps."""
        yield from self._uneven_loaders(record)
        divergence = rank_divergence(record)
        if divergence is None:
            return
        if divergence.rank_condition is None and divergence.rank_loop_exit is None and _has_uneven_batches(divergence):
            yield self.divergence_finding(
                divergence, divergence.most_informative_side(), cure=self.cures, reason=self.texts["divergence_reason"]
            )

    def rehearsed_fixes(self, finding: Finding, record: RehearsalRecord, run: Run) -> Iterator[Fix]:
        """Make the ranks leave the loop together."""
        divergence = rank_divergence(record)
        if divergence is not None:
            yield from fix_divergent_loop(divergence, run)

    def _uneven_loaders(self, record: RehearsalRecord) -> Findings:
        """Loaders of different lengths, whose ends were not reached in the rehearsal."""
        left = {rank.rank: rank.batches_left for rank in record.ranks if rank.batches_left is not None}
        if record.divergence is not None or len(set(left.values())) < 2:
            return
        fewest, most = min(left, key=lambda rank: left[rank] or 0), max(left, key=lambda rank: left[rank] or 0)
        yield self.finding(
            self.texts["batches_left_cause"].format(fewest=fewest, few=left[fewest], most=most, many=left[most]),
            certainty=Certainty.LIKELY,
            ranks=tuple(sorted(left)),
            confirm=translated("The loop runs until the data ends, not for a fixed number of steps"),
        )

    def in_script(self, script: Script, run: Run) -> Findings:
        """An iterable dataset split by rank, in a DDP loop without anything that makes all ranks stop together."""
        if b"IterableDataset" not in script.source.data or run_mentions(run, script, *_STEP_ALIGNMENT_MARKERS):
            return
        scripts = {id(one): one for one in (*run.scripts, script)}.values()
        wrap = next((call for one in scripts for call in one.calls(DDP)), None)
        if wrap is None:
            return
        for owner in script.subclasses("torch.utils.data.IterableDataset"):
            method = owner.methods.get("__iter__")
            # Endless streams never run out; cut to a common length, all ranks run out together.
            if method is None or not contains_rank_name(method) or any(map(_is_endless, ast.walk(method))):
                continue
            yield self.finding(
                self.texts["cause_in_script"].format(owner=owner.name),
                title=self.texts["uneven_batches_title"],
                certainty=Certainty.POSSIBLE,
                severity=Severity.WARNING,
                spans=(script.first_line_place(method).span(), wrap.place.span(translated("DDP waits for all ranks"))),
                confirm=translated("Print each rank's number of batches in an epoch: they differ"),
            )

    def in_log(self, log: FailureLog) -> Findings:
        """Join's own error; a stall with an iterable dataset, near a progress bar's end, or in differing calls."""
        if exhausted := log.find(_EXHAUSTED_PATTERN):
            yield self.log_finding(exhausted, self.texts["join_raises_cause"])
            return
        stall = find_stall(log)
        if stall is None:
            return
        iterable = find_in_log_or_setup(log, _ITERABLE_DATASET_PATTERN)
        near_end = None if iterable or (stall.has_diverged and not stall.is_in_gather) else nearly_finished_line(log)
        if not iterable and near_end is None and (not stall.has_diverged or stall.is_in_gather):
            return
        yield self.log_finding(
            stall.evidence,
            self.texts["uneven_end_cause"].format(
                where=translated("an iterable dataset, whose length is not evened out")
                if iterable
                else translated("near the end of the progress bar, or in different collectives")
            ),
            certainty=stall.cap_certainty(Certainty.LIKELY) if iterable else Certainty.POSSIBLE,
            extra_evidence=tuple(one for one in (iterable, near_end) if isinstance(one, LineMatch)),
            confirm=translated("Print each rank's number of batches in an epoch: they differ"),
        )


def _has_uneven_batches(divergence: RankDivergence) -> bool:
    """Whether the ranks read different numbers of batches, or one left a loop after fewer steps than another."""
    sides = divergence.divergence.sides
    batches = {side.batches for side in sides}
    if 0 not in batches and len(batches) > 1:
        return True
    if divergence.left_loop is not None and divergence.left_loop[2].kind == "for":
        inside, outside, _ = divergence.left_loop
        return outside.steps <= inside.steps
    return 0 in batches and len({side.steps for side in sides}) > 1


def _is_endless(node: ast.AST) -> bool:
    """Whether data is endless: ``while True``, ``itertools.cycle(…)``, ``rows.repeat()``, ``self.repeat``."""
    if isinstance(node, ast.While):
        return isinstance(node.test, ast.Constant) and bool(node.test.value)
    return isinstance(node, (ast.Name, ast.Attribute)) and contains_words(
        last_name(node), "repeat", "cycle", "infinite"
    )
