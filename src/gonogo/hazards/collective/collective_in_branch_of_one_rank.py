import ast
from collections import defaultdict
from collections.abc import Iterator

from gonogo.evidence.rehearsal.rank_divergence import rank_divergence
from gonogo.hazards.facts.divergence_fixes import fix_divergent_loop, fix_rank_conditional_call
from gonogo.hazards.facts.rank_tests import excludes_some_ranks, find_single_rank_test
from gonogo.hazards.rule import (
    Call,
    Certainty,
    Finding,
    Findings,
    Fix,
    Hazard,
    RehearsalRecord,
    Run,
    Script,
    translated,
)

# Position of the group argument.
_GROUP_ARGUMENT_INDEX = {"barrier": 0, "reduce": 3, "gather": 3, "reduce_scatter": 3, "all_to_all_single": 4}
_BARRIER_METHODS = ("barrier", "wait_for_everyone")
_TORCH_COLLECTIVES = (
    *("barrier", "all_reduce", "all_gather", "all_gather_object", "broadcast", "broadcast_object_list", "gather"),
    *("all_gather_into_tensor", "reduce", "reduce_scatter", "reduce_scatter_tensor", "all_to_all", "all_to_all_single"),
)
# A DTensor is gathered, and a distributed checkpoint planned, by all ranks together.
_GATHER_CALLS = ("*.full_tensor", "torch.distributed.checkpoint.save", "torch.distributed.checkpoint.load")
_STATE_DICT_CALLS = tuple(
    f"torch.distributed.checkpoint.state_dict.get_{name}state_dict" for name in ("", "model_", "optimizer_")
)
_COLLECTIVES = (
    *(f"torch.distributed.{name}" for name in _TORCH_COLLECTIVES),
    *(f"accelerate.Accelerator.{name}" for name in ("wait_for_everyone", "gather", "gather_for_metrics", "reduce")),
    *_GATHER_CALLS,
    *_STATE_DICT_CALLS,
)


class CollectiveInBranchOfOneRank(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """Diverging ranks, one of which makes a collective call that the others do not."""
        divergence = rank_divergence(record)
        if divergence is None:
            return
        if divergence.rank_loop_exit is not None:
            yield self.divergence_finding(
                divergence,
                divergence.most_informative_side(),
                cure=self.texts["decide_together_cure"],
                reason=self.texts["collective_explanation"],
            )
        if divergence.rank_condition is None:
            return
        side, _ = divergence.rank_condition
        if side.call is None or not side.call.parameters:
            yield self.divergence_finding(
                divergence,
                side,
                cure=translated("Move the call out of the branch, so that every rank reaches it"),
                reason=self.texts["collective_explanation"],
            )

    def rehearsed_fixes(self, finding: Finding, record: RehearsalRecord, run: Run) -> Iterator[Fix]:
        """Let all ranks do what one rank does."""
        divergence = rank_divergence(record)
        if divergence is not None:
            yield from fix_rank_conditional_call(divergence, run)
        if divergence is not None and divergence.rank_loop_exit is not None:
            yield from fix_divergent_loop(divergence, run)

    def in_script(self, script: Script, run: Run) -> Findings:
        """Collectives in a branch of one rank, if no branch of the other ranks has one."""
        found = [
            *_collectives_in_branches(script, run),
            *((call, guard, None) for call, guard in _sync_dist_calls(script)),
        ]
        for call, guard, other in found:
            sure = run.is_distributed and call.method in _BARRIER_METHODS
            yield self.finding(
                self.texts["cause"].format(test=script.place(guard).text, call=call.method),
                certainty=Certainty.POSSIBLE if other else Certainty.CERTAIN if sure else Certainty.LIKELY,
                cure=self.texts["cure"].format(call=call.method),
                spans=(call.place.span(), script.place(guard).span(translated("this test lets only one rank through"))),
                confirm=self.texts["confirm"].format(call=other.method, line=other.line) if other else (),
            )


def _collectives_in_branches(script: Script, run: Run) -> list[tuple[Call, ast.expr, Call | None]]:
    """Collectives that one rank calls, with the test for that rank, and a matching call of the other ranks.

    A call that the other ranks make in a branch of the same function or class is the counterpart: then all ranks call
    it.
    """
    data = script.source.data
    if run.world_size == 1 or (b"rank" not in data and b"is_main" not in data):
        return []
    callers = _CallerIndex(script)
    found: list[tuple[Call, ast.expr]] = []
    of_others: defaultdict[str, _CallsOnOtherRanks] = defaultdict(lambda: _CallsOnOtherRanks(script))
    without_group, of_state = (
        {call.node for call in script.calls(*patterns)} for patterns in (_GATHER_CALLS, _STATE_DICT_CALLS)
    )
    for call in script.calls(*_COLLECTIVES):
        if call.passed_keyword("group") is not None or call.passed_keyword("process_group") is not None:
            continue
        if call.node in of_state:
            if not _is_full_state_dict(script, call):
                continue
        elif call.node not in without_group and len(call.node.args) > _GROUP_ARGUMENT_INDEX.get(call.method, 2):
            continue
        guard = find_single_rank_test(script, call.node) or callers.test_for_one_rank(call.node)
        if guard is not None:
            found.append((call, guard))
        else:
            of_others[_collective_name(call)].add(call, callers)
    answers: list[tuple[Call, ast.expr, Call | None]] = []
    for call, guard in found:
        alike = of_others[_collective_name(call)]
        if not alike.has_in_function_or_class_of(call.node):
            answers.append((call, guard, alike.first))
    return answers


def _collective_name(call: Call) -> str:
    """The name of the collective; "barrier" for every kind of barrier, since these match each other."""
    return "barrier" if call.method in _BARRIER_METHODS else call.method


def _is_full_state_dict(script: Script, call: Call) -> bool:
    """Whether a call asks for a state dict that is gathered from all ranks."""
    options = call.passed_keyword("options")
    bound = script.bound_to(options.value) if options is not None else None
    return isinstance(bound, ast.Call) and any(
        one.arg == "full_state_dict" and isinstance(one.value, ast.Constant) and one.value.value is True
        for one in bound.keywords
    )


def _sync_dist_calls(script: Script) -> Iterator[tuple[Call, ast.expr]]:
    """``self.log(…, sync_dist=True)`` of a LightningModule, which reduces the value over all ranks."""
    if b"sync_dist" not in script.source.data:
        return
    if any(trainer.keyword("devices").number == 1 for trainer in script.calls("*.Trainer")):
        return
    for call in script.calls("*.log", "*.log_dict"):
        if call.keyword("sync_dist").truth is True and (guard := find_single_rank_test(script, call.node)) is not None:
            yield call, guard


class _CallerIndex:
    """Callers of a file's functions, by name: each name is examined once, however often it is defined."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.uses: defaultdict[str, list[ast.Name]] = defaultdict(list)
        for name in script.nodes(ast.Name):
            self.uses[name.id].append(name)
        self._guards: dict[tuple[str, int], ast.expr | None] = {}

    def test_for_one_rank(self, node: ast.AST, max_depth: int = 3) -> ast.expr | None:
        """The test that lets only one rank call the function around a node, if every call of it has one."""
        function = self.script.enclosing_function(node)
        if function is None or not max_depth or function.decorator_list:
            return None
        if not isinstance(self.script.parent(function), ast.Module):
            return None
        key = (function.name, max_depth)
        if key not in self._guards:
            self._guards[key] = self._find_test_for_one_rank(function.name, max_depth)
        return self._guards[key]

    def _find_test_for_one_rank(self, name: str, max_depth: int) -> ast.expr | None:
        guard = None
        for use in self.uses[name]:
            called = self.script.parent(use)
            if not isinstance(called, ast.Call) or called.func is not use:
                return None  # passed on as a value
            guard = find_single_rank_test(self.script, called) or self.test_for_one_rank(called, max_depth - 1)
            if guard is None:
                return None
        return guard

    def calls_on_other_ranks(self, name: str) -> list[ast.Call]:
        """The calls of a function that are under a test which other ranks pass too."""
        calls = (parent for use in self.uses[name] if isinstance(parent := self.script.parent(use), ast.Call))
        return [call for call in calls if self.runs_on_other_ranks(call)]

    def runs_on_other_ranks(self, node: ast.AST) -> bool:
        """Whether a test around a node excludes some ranks, and so lets others through."""
        return any(excludes_some_ranks(self.script, test) for test in self.script.guarded_by(node))


class _CallsOnOtherRanks:
    """The calls of one collective that other ranks reach, by function and class."""

    def __init__(self, script: Script) -> None:
        self.first: Call | None = None
        self._script = script
        self._functions: set[ast.AST | None] = set()
        self._classes: set[ast.AST] = set()
        self._callees: set[str] = set()

    def add(self, call: Call, callers: _CallerIndex) -> None:
        """Add a call if other ranks reach it, directly or by calls of the function that contains it."""
        nodes = [call.node] if callers.runs_on_other_ranks(call.node) else []
        function = self._script.enclosing_function(call.node)
        if function is not None and function.name not in self._callees:
            self._callees.add(function.name)
            nodes += callers.calls_on_other_ranks(function.name)
        for node in nodes:
            self.first = self.first or call
            self._functions.add(self._script.enclosing_function(node))
            if (owner := self._script.enclosing_class(node)) is not None:
                self._classes.add(owner.node)

    def has_in_function_or_class_of(self, node: ast.AST) -> bool:
        """Whether one of them is in the same function, or in a method of the same class."""
        owner = self._script.enclosing_class(node)
        return self._script.enclosing_function(node) in self._functions or (
            owner is not None and owner.node in self._classes
        )
