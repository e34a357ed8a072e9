import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

from gonogo.evidence.paths import may_exist
from gonogo.evidence.script.identifiers import last_name
from gonogo.evidence.shell.absent import is_left_to_users
from gonogo.hazards.facts.nearest import find_similar_file_name
from gonogo.hazards.facts.program_parser import (
    LINE_CHANGED_PATTERN,
    certainly_runs,
    is_pattern_reachable,
    program_parser,
)
from gonogo.hazards.facts.program_words import argv_index, program_argv
from gonogo.hazards.rule import Call, Findings, Hazard, Launch, Run, Script, translated

_SUFFIXES = (".json", ".yaml", ".yml", ".toml")
_READERS = {
    "omegaconf.OmegaConf.load": "file_",
    "*.parse_json_file": "json_file",
    "*.parse_yaml_file": "yaml_file",
    "toml.load": "f",
    "open": "file",
}
"""What opens a file, and the name of the parameter that says which."""
_LOOKS = ("*.exists", "*.isfile", "*.is_file", "*.isdir", "*.is_dir", "*.access")
_TO_FILL_IN_PATTERN = re.compile(r"(?i)(?:^|[/_.-])(?:your|my|path[/_]to|xxx+)(?:[/_.-]|$)|[<>{}*]")


class ProgramConfigNotFound(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """A missing config file that an argument names, and code that certainly opens it."""
        if launch.framework is not None or launch.in_container or launch.made_before or launch.never is not None:
            return
        if not launch.cwd_known or not run.scripts or is_pattern_reachable(LINE_CHANGED_PATTERN, run):
            return
        for number, word in enumerate(launch.options.words, start=1):
            text = word.value
            if text is None:
                return
            name, equals, value = text.partition("=") if text.startswith("--") else ("", "", text)
            if not value.endswith(_SUFFIXES) or value.startswith(("/", "~")) or _TO_FILL_IN_PATTERN.search(value):
                continue
            path = Path(os.path.normpath(launch.cwd / value))
            if may_exist(path) or launch.copied or is_left_to_users(str(path)):
                continue
            before = launch.options.words[number - 2].value if number > 1 else None
            given = name if equals else before if before is not None and before.startswith("--") else None
            opens = next(_calls_opening_argument(run, number, given), None)
            if opens is None:
                continue
            near = find_similar_file_name(path, _SUFFIXES)
            yield self.finding(
                self.texts["cause"].format(path=path),
                cure=(
                    self.texts["near"].format(near=os.path.join(os.path.dirname(value), near))
                    if near
                    else self.texts["correct"]
                ),
                spans=(word.place.span(), opens.place.span(translated("opened here"))),
            )


def _calls_opening_argument(run: Run, number: int, option: str | None) -> Iterator[Call]:
    """The calls that certainly open the file named by argument ``number``, or by the value of ``option``."""
    names = _attributes_holding_argument(run, number, option)
    plain = run.launch is not None and program_argv(run.launch) is not None
    for script in run.scripts:
        if any(
            _is_argument_expression(script, _first_argument_or_receiver(call), number, names, plain=plain)
            for call in script.calls(*_LOOKS)
        ):
            return  # what it does where the file is not there is its own
    for script in run.scripts:
        for pattern, parameter in _READERS.items():
            for call in script.calls(pattern):
                given = call.keyword_node(parameter) or _first_argument_or_receiver(call)
                if pattern == "open" and not _is_for_reading(call):
                    continue
                if not _is_argument_expression(script, given, number, names, plain=plain):
                    continue
                if run.reachable_code.is_reachable(script.path, call.line) and certainly_runs(script, call.node, run):
                    yield call


def _attributes_holding_argument(run: Run, number: int, option: str | None) -> frozenset[str]:
    """The attributes of argparse's result that hold the argument."""
    parser = program_parser(run)
    if parser is None or not parser.single or run.launch is None:
        return frozenset()
    if option is not None:
        declared = parser.declarations_of(option)
        if len(declared) != 1 or declared[0].takes != "one":
            return frozenset()
        kind = declared[0].call.keyword_node("type")
        if kind is not None and last_name(kind) not in ("str", "Path"):
            return frozenset()
        named = next((name for name in declared[0].names if name.startswith("--")), declared[0].names[0])
        given = declared[0].call.keyword("dest").string if declared[0].call.has("dest") else None
        return frozenset({given or named.lstrip("-").replace("-", "_")})
    positional = [one for one in parser.declared if not one.names]
    if len(positional) != 1 or number != 1 or positional[0].takes != "one":
        return frozenset()
    return frozenset({positional[0].call.argument(0).string or ""})


def _first_argument_or_receiver(call: Call) -> ast.expr | None:
    return call.node.args[0] if call.node.args else call.receiver


def _is_for_reading(call: Call) -> bool:
    mode = call.node.args[1] if len(call.node.args) > 1 else call.keyword_node("mode")
    return mode is None or (isinstance(mode, ast.Constant) and mode.value in ("r", "rb", "rt"))


def _is_argument_expression(
    script: Script, node: ast.expr | None, number: int, names: frozenset[str], *, plain: bool, depth: int = 0
) -> bool:
    """Whether an expression is the argument: ``sys.argv[1]``, ``args.config``, an alias, or a call that returns it."""
    if node is None or depth > 3:
        return False
    if plain and argv_index(node) == number:
        return True
    if isinstance(node, ast.Attribute) and node.attr in names:
        made = script.bound_to(node.value) if isinstance(node.value, ast.Name) else node.value
        return isinstance(made, ast.Call) and last_name(made) == "parse_args"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.args and not node.keywords:
        bodies = [one for one in script.functions if one.name == node.func.id]
        ends = [one for one in ast.walk(bodies[0]) if isinstance(one, ast.Return)] if len(bodies) == 1 else []
        return bool(ends) and all(
            _is_argument_expression(script, one.value, number, names, plain=plain, depth=depth + 1) for one in ends
        )
    if isinstance(node, ast.Name):
        bound = script.bound_to(node)
        return bound is not node and _is_argument_expression(script, bound, number, names, plain=plain, depth=depth + 1)
    return False
