from pathlib import Path

from gonogo.evidence.log.failure_log import FailureLog, LoggedError
from gonogo.evidence.log.match import first_match, matched_text
from gonogo.evidence.log.truncated_traceback import find_truncated_error
from gonogo.evidence.paths import is_file, is_folder
from gonogo.evidence.patterns import Match
from gonogo.hazards.rule import Certainty, Finding, Findings, Hazard, Launch, LogLine, Pattern, Run, translated

_WORLD_SIZE_MESSAGE = "The checkpoint being loaded used a DP"
"""Start of DeepSpeed's own source line that raises the error, for logs that end there."""
_WORLD_SIZES_PATTERN = Pattern(r"world size of (\d+) but the\W{1,8}current world size is (\d+)")


class CheckpointWorldSizeMismatch(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """A local checkpoint folder with the partitions of another number of ranks."""
        given = run.arguments.get("resume_from_checkpoint")
        size, stage = run.world_size, run.zero_stage
        if given.string is None or run.config is None or size is None or not stage:
            return
        if run.config.get("checkpoint", "load_universal").truth or run.arguments.has("tensor_parallel_size"):
            return
        saved = _count_checkpoint_ranks(launch.cwd / given.string)
        if saved in (0, size):
            return
        yield self.finding(
            self.texts["cause"].format(saved=saved, size=size),
            certainty=Certainty.LIKELY if run.framework else Certainty.CERTAIN,
            cure=(translated("Resume with {saved} data-parallel ranks").format(saved=saved), *self.cures),
            spans=(
                given.span() or launch.place.span(),
                launch.place.span(translated("the launch starts {size} processes").format(size=size)),
            ),
        )

    def in_log(self, log: FailureLog) -> Findings:
        """DeepSpeed's error, with both numbers."""
        evidence = first_match(
            log,
            "used a DP world size",
            "current world size is",
            "ZeRO's optimizer state partitioning",
            _WORLD_SIZE_MESSAGE,
        )
        if evidence is None:
            evidence = find_truncated_error(log, ("runtime/engine", "The checkpoint being loaded used a DP"))
            if evidence is not None:
                yield self._mismatch_finding(evidence, None, Certainty.CERTAIN)
            return
        message = matched_text(log, evidence)
        if "used a DP" not in message and "optimizer state partitioning" not in message:
            return
        only_its_line = "world size" not in message and "partitioning" not in message
        yield self._mismatch_finding(
            evidence, _WORLD_SIZES_PATTERN.search(message), Certainty.LIKELY if only_its_line else Certainty.CERTAIN
        )

    def _mismatch_finding(self, evidence: LoggedError | LogLine, sizes: Match | None, certainty: Certainty) -> Finding:
        return self.log_finding(
            evidence,
            self.texts["cause"].format(saved=sizes.group(1), size=sizes.group(2))
            if sizes
            else self.texts["unknown_sizes_cause"],
            certainty=certainty,
            cure=(
                translated("Resume with {saved} data-parallel ranks").format(saved=sizes.group(1))
                if sizes
                else translated("Resume with the number of data-parallel ranks that wrote it"),
                *self.cures,
            ),
        )


def _count_checkpoint_ranks(folder: Path) -> int:
    """How many ranks wrote a partition of a ZeRO checkpoint; 0 if the folder contains none."""
    try:
        steps = [one for one in folder.glob("global_step*") if is_folder(one)]
        latest = folder / "latest"
        if is_file(latest) and latest.stat().st_size < 200:
            steps = [folder / latest.read_text(errors="replace").strip()]
        files = [one.name for one in steps[-1].iterdir()] if steps and is_folder(steps[-1]) else []
    except OSError:
        return 0
    return sum(
        "zero_pp_rank_" in name and "_mp_rank_00_" in name and name.endswith("optim_states.pt") for name in files
    )
