import ast
import re

from gonogo.evidence.rehearsal.failures import failed_ranks, failure_places
from gonogo.evidence.script.nodes import dotted_name
from gonogo.hazards.facts.training_script import creating_calls, first_argument, run_mentions
from gonogo.hazards.rule import (
    Certainty,
    Field,
    Findings,
    Hazard,
    Pattern,
    Refusal,
    RehearsalRecord,
    Run,
    Script,
    translated,
)

_FORKED_CUDA_PATTERN = re.compile(r"Cannot re-initialize \w+ in forked subprocess")


class DataLoaderWorkersUseCuda(Hazard):
    refusal = Refusal(Pattern(_FORKED_CUDA_PATTERN.pattern), Certainty.POSSIBLE)

    def in_script(self, script: Script, run: Run) -> Findings:
        """Datasets whose samples go to the GPU, in a DataLoader or Trainer with workers."""
        if b"__getitem__" not in script.source.data or run_mentions(run, script, b"spawn", b"forkserver"):
            return
        for owner in script.subclasses("torch.utils.data.Dataset"):
            method = owner.methods.get("__getitem__")
            move = _find_move_to_gpu(script, method) if method is not None else None
            workers = _worker_count_of_dataset(script, run, owner.name)
            if move is None or workers is None:
                continue
            yield self.finding(
                self.texts["cause_in_script"].format(owner=owner.name, number=workers.value),
                certainty=Certainty.LIKELY,
                spans=(script.place(move).span(), workers.span(translated("worker processes"))),
            )

    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """CUDA calls that would fail in a forked worker, and the ranks that made them."""
        for failed in failed_ranks(record):
            if not _FORKED_CUDA_PATTERN.search(failed.failure.message):
                continue
            yield self.finding(
                self.texts["cause_in_rehearsal"], spans=failure_places(failed.failure), ranks=failed.ranks
            )


def _find_move_to_gpu(script: Script, method: ast.AST) -> ast.Call | None:
    """The call in a method that moves something to the GPU, by a constant."""
    for node in ast.walk(method):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr == "cuda" and dotted_name(node.func) != "torch.cuda":
            return node
        values = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "device")]
        moves = node.func.attr == "to" or any(keyword.arg == "device" for keyword in node.keywords)
        if moves and any(str(script.field(value).value).startswith("cuda") for value in values):
            return node
    return None


def _worker_count_of_dataset(script: Script, run: Run, dataset: str) -> Field | None:
    """The number of workers that read datasets of that class; None if there are none or it is unknown."""
    for loader in script.calls("torch.utils.data.DataLoader"):
        data = first_argument(loader, "dataset")
        if any(one.name == dataset for one in creating_calls(script, data)):
            workers = loader.keyword("num_workers")
            return workers if (workers.number or 0) > 0 else None
    workers = run.arguments.get("dataloader_num_workers")
    return workers if (workers.number or 0) > 0 else None
