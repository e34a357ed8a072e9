import ast
import os

from gonogo.evidence.log.context import has_several_processes
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.rehearsal.checkpoints.file_races import FileRace, file_races
from gonogo.hazards.facts.rank_tests import mentions_rank
from gonogo.hazards.facts.training_script import DDP, first_argument, run_mentions
from gonogo.hazards.rule import Certainty, Findings, Hazard, Pattern, RehearsalRecord, Run, Script, Severity, translated

_MAX_FILES = 3

# Checkpoints that all ranks write together, and functions that check the rank themselves.
_COORDINATED_SAVE_MARKERS = (
    b"FullyShardedDataParallel",
    b"deepspeed",
    b"save_on_master",
    b"accelerate",
    b"lightning",
    b"setup_for_distributed",
)
_SAVING_FRAMES = (
    "save_checkpoint",
    "_rotate_checkpoints",
    "remove_checkpoint",
    "clean_checkpoint",
    "ckpt",
    "smart_remove",
)
_FILE_MOVING_CALLS = (
    "rmtree",
    "os.rename",
    "os.replace",
    "os.rmdir",
    "os.unlink",
    "os.remove",
    "shutil.move",
    "os.makedirs",
)
_CHECKPOINT_PATTERN = Pattern(r"(?i)checkpoint|ckpt|\.pt\b|global_step|[/_]step_?\d+")
_PATH_CONFLICT_PATTERN = Pattern(r"\[Errno (?:39|17|2)\]")


class CheckpointWrittenByEveryRank(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """Ranks that write, remove or read the same path of a checkpoint, with nothing between that orders them."""
        by_kind: dict[str, list[FileRace]] = {}
        first = record.first_life or record
        for race in file_races(first):
            by_kind.setdefault(race.kind, []).append(race)
        causes = {
            "written-twice": self.texts["written-twice"],
            "removed-twice": self.texts["removed-twice"],
            "removed-in-use": self.texts["removed-in-use"],
            "read-while-written": self.texts["read-while-written"],
        }
        for kind, races in by_kind.items():
            files = [*dict.fromkeys(os.path.basename(race.path) for race in races)]
            named = ", ".join(files[:_MAX_FILES]) + (", …" if len(files) > _MAX_FILES else "")
            a, b, *_ = races[0].ranks
            one_node = a // first.ranks_per_node == b // first.ranks_per_node
            yield self.finding(
                causes[kind].format(a=a, b=b, files=named),
                ranks=tuple(sorted({rank for race in races for rank in race.ranks})),
                severity=Severity.WARNING,
                certainty=Certainty.CERTAIN if one_node and kind != "read-while-written" else Certainty.LIKELY,
                cure=self.page.cures,
                confirm=() if one_node else self.texts["confirm_shared"],
            )

    def in_log(self, log: FailureLog) -> Findings:
        """A checkpoint folder that is missing or already exists when this rank removes, renames or creates it."""
        for error in log.errors_of("FileNotFoundError", "FileExistsError", "OSError"):
            saves = error.passes(*_SAVING_FRAMES) or _CHECKPOINT_PATTERN.search(error.message)
            if not saves or not error.passes(*_FILE_MOVING_CALLS) or has_several_processes(log) is False:
                continue
            if error.type == "OSError" and not _PATH_CONFLICT_PATTERN.search(error.message):
                continue
            several = len(error.ranks) > 1 or error.count > 1
            yield self.log_finding(
                error,
                certainty=Certainty.LIKELY if several or has_several_processes(log) else Certainty.POSSIBLE,
                confirm=translated("The run does not fail with one process"),
            )
            return

    def in_script(self, script: Script, run: Run) -> Findings:
        """torch.save without a rank test, in a script that creates a process group and wraps a model in DDP."""
        data = script.source.data
        if b"torch.save" not in data or b"DistributedDataParallel" not in data or run.world_size == 1:
            return
        if run_mentions(run, script, *_COORDINATED_SAVE_MARKERS) or next(script.calls(DDP), None) is None:
            return
        for call in script.calls("torch.save"):
            path = first_argument(call, "f", index=1)
            if path is None or mentions_rank(script, path) or not _runs_on_all_ranks(script, call.node, 0):
                continue
            yield self.finding(
                translated("Every rank reaches this torch.save and writes to the same path."),
                severity=Severity.WARNING,
                cure=translated("Write on one rank: if torch.distributed.get_rank() == 0: torch.save(...)"),
                spans=call.place.span(),
            )


def _runs_on_all_ranks(script: Script, node: ast.AST, depth: int) -> bool:
    """Whether neither a test around a node nor one around the calls of its function depends on the rank."""
    if any(mentions_rank(script, test) for test in script.guarded_by(node)) or depth > 4:
        return False
    function = script.enclosing_function(node)
    if function is None:
        return True
    if isinstance(script.parent(function), ast.ClassDef):
        return False
    calls = [call for call in script.index.calls if isinstance(call.func, ast.Name) and call.func.id == function.name]
    if not calls:  # a main that mp.spawn starts, or a function for other modules
        return function.name in ("main", "train", "run", "worker", "main_worker")
    return any(_runs_on_all_ranks(script, call, depth + 1) for call in calls)
