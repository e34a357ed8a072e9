from gonogo.evidence.script.identifiers import is_main_guard
from gonogo.hazards.rule import Call, Findings, Hazard, Run, Script, translated


class ProcessGroupRankFixed(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A constant rank, or a world size of 1, if the launch starts several processes."""
        size = run.world_size
        if b"init_process_group" not in script.source.data or size is None or size < 2:
            return
        for call in script.calls("torch.distributed.init_process_group"):
            rank, world = _integer_literal(call, "rank"), _integer_literal(call, "world_size")
            if script.guarded_by(call.node) or (rank is None and world != 1):
                continue
            if _uses_single_process_backend(call) or _called_under_conditions(script, call):
                continue
            wrong = [name for name, value in (("rank", rank), ("world_size", world)) if value is not None]
            edits = [script.removing_keyword(call, name) for name in wrong]
            by_environment = call.keyword("init_method").get("env://") == "env://"
            places = [place.span() for name in wrong if (place := call.keyword_place(name)) is not None]
            assert run.launch is not None
            yield self.finding(
                self.texts["cause"].format(
                    given=", ".join(f"{name}={call.keyword(name).value}" for name in wrong), size=size
                ),
                spans=(
                    *places,
                    run.launch.place.span(translated("the launch starts {size} processes").format(size=size)),
                ),
                fixes=self.fix(
                    translated("Read rank and world_size from the launcher's environment variables"), edits[0]
                )
                if len(edits) == 1 and edits[0] is not None and by_environment
                else None,
            )


_BACKENDS_OF_ONE_PROCESS = ("fake", "threaded")
"""Backends of torch's own tests and dry runs: no other process joins such a group."""


def _uses_single_process_backend(call: Call) -> bool:
    backend = call.keyword("backend") if call.has("backend") else call.argument(0)
    return backend.string in _BACKENDS_OF_ONE_PROCESS


def _called_under_conditions(script: Script, call: Call) -> bool:
    """Whether the call is in a function that the script only calls under conditions, such as a dry run."""
    function = script.enclosing_function(call.node)
    if function is None:
        return False
    guards = [script.guarded_by(one.node) for one in script.calls(function.name, f"*.{function.name}")]
    return bool(guards) and all(any(not is_main_guard(test) for test in tests) for tests in guards)


def _integer_literal(call: Call, name: str) -> int | None:
    """An integer literal passed as the argument ``name``."""
    node = call.keyword_node(name)
    value = getattr(node, "value", None)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
