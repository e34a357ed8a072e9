import ast

from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.evidence.script.identifiers import is_main_guard, is_option, last_name
from gonogo.hazards.facts.zero_usage import is_in_gathered_parameters, is_under_zero_condition, stage_span
from gonogo.hazards.rule import Certainty, Findings, Hazard, Pattern, Run, Script, Severity, Text, translated
from gonogo.hazards.zero3._empty_parameter_uses import RESIZE_FUNCTIONS
from gonogo.hazards.zero3._loading import is_zero3_configured_at
from gonogo.hazards.zero3._zero3_in_log import find_error_or_line, is_under_zero3

_EMPTY_VOCABULARY_PATTERN = Pattern(r"shape '\[-1, 0\]' is invalid for input of size [1-9]")
_RESIZES_PATTERN = Pattern(r"resize_token_embeddings|resize_embedding")

# Releases that read the size from the partitioned weight, and the first fixed one after each.
_FAULTY_RELEASES = ((">=4.32,<4.34", "4.34.0"), (">=4.43,<4.43.3", "4.43.3"))
_EMBEDDING_GETTERS = ("get_input_embeddings", "get_output_embeddings")


class Zero3ResizeEmbeddings(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A resize under an affected transformers, or new rows that are written into the partitioned embedding."""
        if run.zero_stage != 3 or b"resize_token_embeddings" not in script.source.data:
            return
        for faulty, fixed in _FAULTY_RELEASES:
            if run.environment.within("transformers", faulty):
                yield from self._faulty_release_findings(script, run, fixed)
        for statement in script.nodes(ast.Assign):
            target = statement.targets[0]
            if (
                not isinstance(target, ast.Subscript)
                or is_in_gathered_parameters(script, statement)
                or is_under_zero_condition(script, statement)
            ):
                continue
            source = _resolve_embedding(script, target.value)
            if source is None:
                continue
            yield self.finding(
                self.texts["cause_in_script"].format(code=ast.unparse(statement)[:70]),
                severity=Severity.WARNING if (called := _is_always_called(script, statement)) else Severity.NOTE,
                certainty=Certainty.LIKELY if called else Certainty.POSSIBLE,
                cure=self.texts["gather_cure"],
                spans=(
                    script.place(statement).span(),
                    script.place(source).span(translated("the partitioned embedding")),
                    stage_span(run),
                ),
            )

    def _faulty_release_findings(self, script: Script, run: Run, fixed_version: str) -> Findings:
        version = run.environment.field("transformers")
        edit = run.environment.replacing_version("transformers", f"=={fixed_version}")
        for call in script.calls("*.resize_token_embeddings"):
            known = is_zero3_configured_at(script, call.node)
            if known is False or not (call.node.args or call.node.keywords):
                continue
            yield self.finding(
                self.texts["faulty_release_cause"].format(version=version.get("?")),
                certainty=Certainty.CERTAIN if known else Certainty.LIKELY,
                cure=(
                    Text(
                        f"Install transformers {fixed_version} or later",
                        f"安装 transformers {fixed_version} 或更新版本",
                    ),
                    self.texts["gather_cure"],
                ),
                spans=(version.span(translated("a release with this bug")), call.place.span(), stage_span(run)),
                fixes=self.fix(
                    Text(f"Pin transformers {fixed_version}", f"固定为 transformers {fixed_version}"), edit, safe=False
                )
                if edit
                else None,
            )

    def in_log(self, log: FailureLog) -> Findings:
        """An empty weight in code that resizes embeddings, or a vocabulary of 0."""
        on = is_under_zero3(log)
        if on is False:
            return
        found: list[tuple[LoggedError | LineMatch, Certainty]] = []
        for error in log.errors_of("RuntimeError", "IndexError", "AssertionError", "ValueError", "AttributeError"):
            if error.passes(*RESIZE_FUNCTIONS):
                if self.patterns["empty_tensor"].search(error.message):
                    found.append((error, Certainty.CERTAIN if on else Certainty.LIKELY))
                elif on:
                    found.append((error, Certainty.LIKELY))
        if evidence := find_error_or_line(log, _EMPTY_VOCABULARY_PATTERN, "RuntimeError"):
            found.append((evidence, Certainty.CERTAIN if on and log.find(_RESIZES_PATTERN) else Certainty.LIKELY))
        for one, certainty in found:
            yield self.log_finding(
                one,
                certainty=certainty,
                confirm=translated("model.config.vocab_size prints 0 after resize_token_embeddings"),
            )


def _is_always_called(script: Script, statement: ast.stmt) -> bool:
    """False if the function that contains the statement is called only under some condition.

    A missing pad token does not count as a condition: it is the usual case.
    """
    function = script.enclosing_function(statement)
    calls = [
        node
        for node in script.nodes(ast.Call)
        if function is not None and isinstance(node.func, ast.Name) and node.func.id == function.name
    ]
    return not calls or any(all(map(_is_usually_true, script.guarded_by(node))) for node in calls)


def _is_usually_true(test: ast.expr) -> bool:
    """Whether a test is about a pad token (not a command-line option named so) or is ``__name__ == "__main__"``."""
    own = any(
        last_name(each) in ("pad_token", "pad_token_id")
        for each in ast.walk(test)
        if isinstance(each, (ast.Name, ast.Attribute)) and not is_option(each)
    )
    return own or is_main_guard(test)


def _resolve_embedding(script: Script, node: ast.expr) -> ast.expr | None:
    """The model's embedding or head weight to which an expression refers, also through variables; else None."""
    weight = each = script.bound_to(node)
    names: list[str] = []
    while isinstance(each, ast.Attribute):
        names.append(each.attr)
        each = script.bound_to(each.value)
    of_layer = isinstance(each, ast.Call) and script.call_at(each).method in _EMBEDDING_GETTERS
    return weight if of_layer and "weight" in names else None
