"""Explain an exception by its message and its line if no hazard explains it: why it failed, and what to do."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

from gonogo.diagnose.explanations.attributes import explain_by_attribute, implementing_framework
from gonogo.diagnose.explanations.calls import explain_by_call
from gonogo.diagnose.explanations.explanation import Explanation, first_explanation
from gonogo.diagnose.explanations.messages import explain_by_message
from gonogo.diagnose.explanations.missing_keys import explain_missing_key, is_sentence
from gonogo.diagnose.explanations.places import (
    REQUIREMENT_PATTERN,
    matching_releases_advice,
    name_and_version,
    place_to_look,
)
from gonogo.diagnose.explanations.python_errors import explain_by_python_error
from gonogo.diagnose.explanations.rule_table import explain_by_rule
from gonogo.diagnose.explanations.surroundings import explain_by_surroundings
from gonogo.diagnose.explanations.topics import FailingPart, suggest_change
from gonogo.evidence.failure.api_mismatch import (
    CALL_MISMATCH_FORMS,
    FORMS,
    FORWARDING_FUNCTIONS,
    PLAIN_TYPES,
    ApiMismatch,
    find_api_mismatch,
    library_package,
    trainer_config_class,
)
from gonogo.evidence.failure.failure_facts import is_raised_in_user_code
from gonogo.evidence.failure.native import demangled_name, is_own_symbol
from gonogo.evidence.patterns import lazy_compile
from gonogo.finding import Text, translated
from gonogo.finding.failure import CodePlace, FailureFacts, Message, RaisedException

_MAX_MESSAGE_LENGTH = 400
_ASSERT_PATTERN = lazy_compile(r"^assert\s+(.+?)(?:,\s*(?:[f\"'(\\].*)?)?$")
_DIVISOR_PATTERN = lazy_compile(r"(?://|/|%)=? ?\(?([A-Za-z_][\w.]*(?:\[[^\]]{1,40}\]|\([^()]{0,80}\))?)")
_NONE_USED_PATTERN = lazy_compile(
    r"object has no attribute '(\w{1,120})'|object is not (subscriptable|callable|iterable)|has no (len)\(\)"
)
_LENGTH_OF_PATTERN = lazy_compile(r"\blen\(([A-Za-z_][\w.]*(?:\[[^\[\]()]{1,80}\])*)\)")
_NONE_OPERAND_PATTERN = lazy_compile(
    r"(?:unsupported operand type\(s\) for (\S{1,3}?):|'(\S{1,2})' not supported between instances of) "
    r"'(\w{1,60})' and '(\w{1,60})'"
)
_MAX_CODE_LENGTH = 2000
"""Maximum length of a code line that is examined; a longer one was not written by hand."""
_ADVICE_PATTERN = lazy_compile(
    r"(?i)(?:^|(?<=[.!;:\n)]) ?)((?:please|you (?:should|need to|must|can|may)|try|consider|make sure|use |set |call "
    r"|(?:either|for [^.,\n]{3,60},) "
    r"(?:use|set|call|enable|disable|pass|provide|add|remove|install|upgrade|reduce|increase)\b"
    r"|install |pass |add |remove |reduce |increase |to fix|instead,? |specify|enable|disable|upgrade|downgrade|adjust "
    r"|run )"
    r"[^\n]{3,300}?)"
    r"(?:\.(?=\s|$)|$|\n)"
)
_SIZES_OF_TORCH_PATTERN = lazy_compile(r"^(?:Sizes of tensors|The (?:expanded )?size of)\b")
"""Messages of torch that state which sizes must match, which is no advice."""
_NOT_INITIALIZED_PATTERN = lazy_compile(r"(.{3,120}?) is not initialized")


class Statement(NamedTuple):
    """Why an exception was raised, as a clause, what to change, and whether the reason is certain."""

    because: Text
    change: Text | None
    sure: bool
    told: bool = True
    """Whether it says more than the message that was raised."""
    at: CodePlace | None = None
    """The place to show if not where it was raised: the call of a function that only checks."""


def exception_statement(
    facts: FailureFacts, versions: Mapping[str, str], parts: Sequence[FailingPart] = (), cure: Text | None = None
) -> Statement | None:
    """The explanation of the most informative exception in the chain; None if there is none.

    ``parts`` are what the failing code is for, and ``cure`` is that of a possible finding: what to try if the
    exception itself suggests nothing.
    """
    if not facts.chain:
        return None
    raised = most_informative_exception(facts.chain)
    misfit = find_api_mismatch(facts, versions)
    because, change = _explain_by_first_rule(raised, misfit, versions)
    told = because is not None
    because = because or _raised_message(raised)
    change = change or _advice_in_message(raised.message) or matching_releases_advice(facts)
    change = change or cure or _change_of_part(parts, facts, raised) or place_to_look(facts)
    at = _checking_call(raised)
    if at is None and raised is not facts.chain[-1] and raised.frames:
        at = raised.frames[-1]
    if at is None and misfit is not None and raised.frames and raised.frames[-1].function in FORWARDING_FUNCTIONS:
        at = misfit.at
    if at is None and raised is facts.chain[-1] and raised.frames and raised.frames[-1].owner == "python":
        # Python's own code raises for what it was given: the line that called it shows what.
        at = next((frame for frame in reversed(raised.frames) if frame.owner != "python"), None)
    if raised is not facts.chain[-1] and _is_cleanup_error(raised, facts.chain[-1]):
        because = translated(
            "{because}; the {type} that follows only hides this, since it was raised while cleaning up after "
            "the failure"
        ).format(because=because, type=facts.chain[-1].type)
    return Statement(because, change, is_raised_in_user_code(raised) and not facts.collectives, told, at)


def is_fully_explained(facts: FailureFacts, versions: Mapping[str, str]) -> bool:
    """Whether rules say both why the failure's exception was raised and what to change."""
    if not facts.chain:
        return False
    raised = most_informative_exception(facts.chain)
    because, change = _explain_by_first_rule(raised, find_api_mismatch(facts, versions), versions)
    return because is not None and change is not None


def _explain_by_first_rule(
    raised: RaisedException, misfit: ApiMismatch | None, versions: Mapping[str, str]
) -> Explanation:
    """The explanation of the first rule that applies; parts of it are None if none does."""
    last = (
        partial(_explain_api_mismatch, misfit, versions)
        if misfit is not None and raised.message.form in FORMS
        else partial(_explain_by_form, raised)
    )
    return first_explanation(
        (
            partial(explain_by_surroundings, raised, versions),
            partial(explain_by_rule, raised),
            partial(explain_by_call, raised),
            partial(explain_by_attribute, raised, misfit, versions),
            partial(explain_by_message, raised),
            partial(_without_search_in_package, raised, partial(explain_by_python_error, raised, versions)),
            partial(_without_search_in_package, raised, last),
        )
    )


def _without_search_in_package(raised: RaisedException, rule: Callable[[], Explanation]) -> Explanation:
    """A rule's answer; where a package's code called itself, its release first, and then what to look for there.

    A value that a package's function gets from the same package was seldom passed or set by the user.
    """
    because, change = rule()
    package = _package_calling_itself(raised)
    if change is None or not package or package.partition(" ")[0] in change.en:
        return because, change
    return because, translated(
        "{package} calls itself there, so use another release of it (a later one first), or turn off the option that "
        "leads to this call; or {change}"
    ).format(package=package, change=change)


def _package_calling_itself(raised: RaisedException) -> str:
    """The package, with its release, whose function raised and was called by another of its functions; or nothing."""
    frames = [frame for frame in raised.frames if frame.owner != "python"][-2:]
    same = len(frames) == 2 and frames[0].package == frames[1].package and frames[1].owner in ("package", "clone")
    return name_and_version(frames[1].package, frames[1].release) if same and frames[1].package != "torch" else ""


def _change_of_part(parts: Sequence[FailingPart], facts: FailureFacts, raised: RaisedException) -> Text | None:
    """The advice to run without the failing feature; after advice on the user's own line, if that raised it."""
    # A feature that no setting shows to be on is not suggested to be turned off.
    part = next((part for part in parts if part.setting is not None), None)
    if part is None:
        return None
    change = suggest_change(part, raised)
    if facts.at is None or facts.at.owner != "user" or (place := place_to_look(facts)) is None:
        return change
    return Text(f"{place.en}; {change.en}", f"{place.zh}；{change.zh}")


_CHECK_FUNCTION_PATTERN = lazy_compile(r"(?i)ensure|assert|check|validate|verify|raise_|require|^_?divide$")
_REPLACEMENT_PATTERN = lazy_compile(r"(?i)^_?(?:disable|forbid|refuse|deny|prohibit|disallow|block)d?_")
"""A function that is put in another one's place only to raise: its caller's line calls it by the other name."""


def _checking_call(exception: RaisedException) -> CodePlace | None:
    """The caller of a function that only checks something: its line shows the names that are checked."""
    frames = exception.frames
    if len(frames) < 2 or not frames[-2].code:
        return None
    if _REPLACEMENT_PATTERN.search(frames[-1].function) and frames[-1].code.lstrip().startswith("raise"):
        return frames[-2]
    if not _CHECK_FUNCTION_PATTERN.search(frames[-1].function):
        return None
    name = frames[-1].function.rpartition(".")[2]
    return frames[-2] if f"{name}(" in frames[-2].code else None


def most_informative_exception(chain: tuple[RaisedException, ...]) -> RaisedException:
    """The chain's most informative exception: the last one, unless it only reports another one's failure."""
    last = chain[-1]
    if len(chain) > 1 and (
        not last.message.text
        or last.message.text.startswith("Hard failure due to")
        or _is_cleanup_error(chain[-2], last)
    ):
        return chain[-2]
    return last


def _is_cleanup_error(first: RaisedException, last: RaisedException) -> bool:
    """Whether the last exception occurred only because the first left a function before its variables were set."""
    if last.type not in ("UnboundLocalError", "NameError") or not last.frames:
        return False
    at = last.frames[-1]
    return any((frame.path, frame.function) == (at.path, at.function) for frame in first.frames)


def _explain_by_form(exception: RaisedException) -> Explanation:
    """The explanation by the form of the exception's message."""
    message, code = exception.message, exception.frames[-1].code[:_MAX_CODE_LENGTH] if exception.frames else ""
    if message.form == "missing_key" and not is_sentence(message.names[0]):
        return explain_missing_key(message, code, exception)
    if message.form == "state_dict":
        return translated("the keys of the checkpoint do not match those of {model}").format(
            model=message.subject or "the model"
        ), None
    if message.form == "undefined_symbol":
        package = library_package(message.subject)
        return (
            translated("{package} was compiled for a different build: its library can't find {symbol}").format(
                package=package, symbol=demangled_name(message.names[0])
            ),
            translated(
                "reinstall or rebuild {package} for the installed torch (a wheel for its version, CUDA and C++ ABI)"
            ).format(package=package),
        )
    if message.subject == "NoneType" or (exception.type == "TypeError" and "'NoneType'" in message.text):
        return _explain_none(message, code)
    if exception.type == "ZeroDivisionError":
        return _explain_zero_division(code)
    if (checked := _checking_call(exception)) is not None and message.text:
        return _explain_call(checked, message), None
    if exception.type == "AssertionError":
        return _explain_assertion(message, code)
    if found := _NOT_INITIALIZED_PATTERN.search(message.text):
        return _uninitialized_text(found.group(1)), None
    return None, None


def _explain_none(message: Message, code: str) -> Explanation:
    used = _NONE_USED_PATTERN.search(message.text)
    what = ""
    if used is not None and used.group(1):
        found = re.search(rf"([A-Za-z_][\w.\[\]'\"]*)\.{re.escape(used.group(1))}\b", code)
        what = found.group(1) if found is not None else ""
    elif used is not None and used.group(3):
        lengths = set(_LENGTH_OF_PATTERN.findall(code))
        what = lengths.pop() if len(lengths) == 1 else ""
    elif used is not None:
        ends = {"subscriptable": r"\[", "callable": r"\("}.get(used.group(2), "")
        found = re.search(rf"([A-Za-z_][\w.]*){ends}", code) if ends else None
        what = found.group(1) if found is not None else ""
    elif operands := _NONE_OPERAND_PATTERN.search(message.text):
        what = _none_operand(operands, code)
    if not what:
        return None, None
    if read := re.search(rf"{re.escape(what)}\(\s*[\"'](\w{{1,80}})[\"'],\s*(?!None\b)[^()]{{1,80}}\)", code):
        return (
            translated(
                "{call} gives None: '{key}' is there with the value null, and a default counts only where the key is "
                "missing"
            ).format(call=read.group(), key=read.group(1)),
            translated("set {key} to a value, or leave it out").format(key=read.group(1)),
        )
    return (
        translated("{what} is None at that line").format(what=what),
        translated(
            "find what leaves {what} as None (an entry that has no value, an argument that was not passed, a branch "
            "that "
            "returns nothing), and skip or fill it"
        ).format(what=what),
    )


def _none_operand(operands: re.Match[str], code: str) -> str:
    """The operand that is None, if the line names it."""
    operator = re.escape(operands.group(1) or operands.group(2))
    name = r"([A-Za-z_][\w.]*(?:\[[^\]]{1,40}\])?)"
    left, right = operands.group(3) == "NoneType", operands.group(4) == "NoneType"
    if left == right:
        return ""
    found = re.search(rf"{name}\s*{operator}=?\s" if left else rf"{operator}=?\s*{name}", code)
    return found.group(1) if found is not None else ""


def _explain_zero_division(code: str) -> Explanation:
    found = _DIVISOR_PATTERN.search(code)
    if found is None:
        return None, None
    return (
        translated("the line divides by {name}, which is 0").format(name=found.group(1)),
        translated("give {name} a value above 0").format(name=found.group(1).rpartition(".")[2]),
    )


def _explain_assertion(message: Message, code: str) -> Explanation:
    check = _ASSERT_PATTERN.match(code)
    said = _first_lines(message.text)
    tested = (check.group(1) if check is not None else code).strip().rstrip("\\,").strip()
    if found := _NOT_INITIALIZED_PATTERN.search(message.text):
        return _uninitialized_text(found.group(1)), None
    # The line is often a call, or only a name or bracket of one: a check is shown only for an assert statement.
    if not tested or tested.startswith(("raise ", "assert")) or (check is None and not code.startswith("assert")):
        return (Text(f"a check does not hold: {said}", f"一项检查不成立：{said}"), None) if said else (None, None)
    if not said:
        return Text(f"the check `{tested}` does not hold", f"检查 `{tested}` 不成立"), None
    return Text(f"the check `{tested}` does not hold: {said}", f"检查 `{tested}` 不成立：{said}"), _divisibility_advice(
        tested, message
    )


_MODULO_PATTERN = lazy_compile(r"^([A-Za-z_][\w.]*(?:\[[^\]]{1,30}\])?) % ([A-Za-z_][\w.]*|\d{1,9}) == 0$")


def _divisibility_advice(tested: str, message: Message) -> Text | None:
    """What to do about a failed ``a % b == 0``, if the message gives no advice."""
    found = _MODULO_PATTERN.match(tested)
    if found is None or _ADVICE_PATTERN.search(message.text[:4000]):
        return None
    return translated(
        "make {whole} a multiple of {divisor}: pad it, or choose sizes (tokens in a batch, rows per expert, "
        "a parallel size) that make it one"
    ).format(whole=found.group(1), divisor=found.group(2))


def _explain_call(place: CodePlace, message: Message) -> Text:
    said, code = _first_lines(message.text), place.code.rstrip(",(").strip()
    return Text(f"in `{code}`, {said}", f"`{code}` 中：{said}")


def _uninitialized_text(what: str) -> Text:
    return Text(
        f"the {what} was asked for before it was set up: this process never called what sets it up, or the caller is "
        f"written "
        "for another release, which sets it up elsewhere",
        f"{what} 尚未建立就被使用：本进程没有调用建立它的函数，或调用方是为在别处建立它的另一版本编写的",
    )


def _explain_api_mismatch(api_mismatch: ApiMismatch, versions: Mapping[str, str]) -> Explanation:
    if api_mismatch.form == "undefined_symbol" and is_own_symbol(api_mismatch.subject, api_mismatch.names[0]):
        library = api_mismatch.subject.rpartition("/")[2]
        return (
            translated("{library} was built without a function of its own, {name}").format(
                library=library, name=demangled_name(api_mismatch.names[0])
            ),
            translated(
                "delete the built library and rebuild it; if that gives the same, use a later release of the "
                "package that builds it, or do without what needs {library}"
            ).format(library=library),
        )
    if api_mismatch.form == "no_module" and "." not in api_mismatch.subject:
        return _explain_missing_package(api_mismatch, versions)
    what = _missing_attribute_text(api_mismatch)
    if (python := _explain_python_release(api_mismatch))[0] is not None:
        return python
    if _comes_from_batch(api_mismatch):
        name = api_mismatch.names[0]
        return (
            translated(
                "the batch has an entry '{name}' that the model's forward does not accept: the tokenizer or the "
                "collator adds it"
            ).format(name=name),
            translated(
                "leave {name} out: return_{name}=False when tokenizing, remove_unused_columns=True, or drop "
                "it in the collator; the tokenizer class may belong to another model"
            ).format(name=name),
        )
    lacks, asks = (
        name_and_version(api_mismatch.lacks, api_mismatch.lacks_version),
        name_and_version(api_mismatch.asks, api_mismatch.asks_version),
    )
    if api_mismatch.asks and api_mismatch.lacks:
        because = translated("{asks} and {lacks} are incompatible: {what}").format(asks=asks, lacks=lacks, what=what)
        change = translated(
            "install the release of {lacks} that {asks} needs (its requirements), or a release of {asks} made "
            "for {there}"
        ).format(lacks=api_mismatch.lacks, asks=api_mismatch.asks, there=lacks)
        return because, change
    if (
        api_mismatch.lacks
        and api_mismatch.form == "no_attribute"
        and not api_mismatch.subject.islower()
        and "." not in api_mismatch.subject
    ):
        return what, translated(
            "the code that needs it expects another kind of model or object, or another release of {lacks}: "
            "compare the release that it was written for with {there}"
        ).format(lacks=api_mismatch.lacks, there=lacks)
    if api_mismatch.lacks and api_mismatch.by_user and api_mismatch.form in CALL_MISMATCH_FORMS:
        config = trainer_config_class(api_mismatch.subject)
        return what, translated(
            "{config}change your call to what {there} accepts, or install the release of {lacks} that it was "
            "written for"
        ).format(
            config=Text(
                f"give {', '.join(api_mismatch.names)} to {config}, if it is a setting of the training; or ",
                f"若 {', '.join(api_mismatch.names)} 是训练设置，请放入 {config}；或",
            )
            if config
            else "",
            there=lacks,
            lacks=api_mismatch.lacks,
        )
    if api_mismatch.lacks:
        because = translated("{what}").format(what=what)
        change = translated(
            "install a release of {lacks} that has it, or change the call: the code that needs it was written "
            "for a different release than {there}"
        ).format(lacks=api_mismatch.lacks, there=lacks)
        return because, change
    if (
        api_mismatch.asks
        and api_mismatch.form in CALL_MISMATCH_FORMS
        and (by := implementing_framework(api_mismatch, versions))
    ):
        there = name_and_version(by, versions.get(by, ""))
        return (
            translated(
                "{asks} makes this call, and {what}: its class implements an interface of {package} for {there}, and "
                "was "
                "written for another release of {package}"
            ).format(asks=asks, what=what, package=api_mismatch.asks, there=there),
            translated(
                "use the release of {package} that {there} was made for (its requirements), or a later release of {by}"
            ).format(package=api_mismatch.asks, there=there, by=by),
        )
    private = api_mismatch.subject.startswith("_") and not api_mismatch.subject.startswith("__")
    if api_mismatch.asks and private and "." not in api_mismatch.subject and api_mismatch.form in CALL_MISMATCH_FORMS:
        return (
            translated(
                "{asks} makes this call, and {what}: the function is private, so as a rule {package}'s own"
            ).format(asks=asks, what=what, package=api_mismatch.asks),
            translated(
                "it is a defect of that release of {package}, or files of two releases are mixed (an installation on "
                "top of another, a partial checkout): use another release or commit, installed afresh; or correct "
                "the call"
            ).format(package=api_mismatch.asks),
        )
    if api_mismatch.asks:
        because = translated("{asks} makes this call, and {what}").format(asks=asks, what=what)
        if api_mismatch.form in CALL_MISMATCH_FORMS:
            return because, _change_of_unknown_callee(api_mismatch)
        change = translated(
            "install the releases that {asks} is made for (its requirements): what it calls is from a different release"
        ).format(asks=api_mismatch.asks)
        return because, change
    if api_mismatch.by_user:
        return what, translated("change the call in your code, or install the version that it was written for")
    told = ", ".join(f"{name} {version}" for name, version in list(versions.items())[:6])
    if told:
        return what, translated(
            "caller and callee come from different releases; the run has {told}: install the releases that "
            "the framework's requirements name"
        ).format(told=told)
    return what, translated(
        "caller and callee come from different releases: give the lines above this one, or pip freeze, and "
        "compare the versions of both packages"
    )


_TRAINERS_OWN_ARGUMENTS = (
    *("reward_funcs", "rollout_func", "environment_factory", "reward_processing_classes", "processing_class"),
    *("train_dataset", "eval_dataset", "data_collator", "callbacks", "peft_config", "formatting_func"),
    *("compute_metrics", "compute_loss_func", "optimizers", "optimizer_cls_and_kwargs"),
)
"""Arguments that trl's and transformers' trainers take themselves, and their configs do not."""


def _change_of_unknown_callee(api_mismatch: ApiMismatch) -> Text:
    """What to do about a call whose callee may belong to the caller's own package, or to another one."""
    package, subject = api_mismatch.asks, api_mismatch.subject.partition(".")[0]
    given = [name for name in api_mismatch.names if name in _TRAINERS_OWN_ARGUMENTS]
    if given and api_mismatch.form == "unexpected_keyword" and subject.endswith(("Config", "Arguments")):
        return translated(
            "{name} is an argument of the trainer, not of its config: {package} hands it on to the wrong one. Use a "
            "later release of {package}, or leave {name} out of the config and pass it to the trainer yourself"
        ).format(name=given[0], package=package)
    return translated(
        "if {subject} is {package}'s own, it is a defect of this release of {package}: use another one (a later "
        "one first), or turn off the option that leads to this call; if another package defines it, install the "
        "release of that package that {package} is made for (its requirements)"
    ).format(subject=subject, package=package)


_PYTHON_RELEASE_PATTERN = lazy_compile(r"[/\\\\]python(3\.\d{1,2})[/\\\\]")


def _explain_python_release(api_mismatch: ApiMismatch) -> Explanation:
    """A name that a module of Python's standard library lacks in this Python."""
    module = api_mismatch.subject.partition(".")[0]
    if api_mismatch.form not in ("no_attribute", "not_importable") or module not in sys.stdlib_module_names:
        return None, None
    if api_mismatch.form == "no_attribute" and (module in PLAIN_TYPES or not api_mismatch.lacks):
        return None, None  # An object, of a built-in type or of a class of that module.
    found = _PYTHON_RELEASE_PATTERN.search(api_mismatch.at.path) if api_mismatch.at is not None else None
    python = f"Python {found.group(1)}" if found is not None else "Python"
    by = name_and_version(api_mismatch.asks, api_mismatch.asks_version)
    return (
        translated(
            "the module {module} of this {python} has no {name}: it belongs to the standard library of a newer Python, "
            "or a newer Python has removed it"
        ).format(module=module, python=python, name=api_mismatch.names[0]),
        translated(
            "run it with a Python that {asks} supports (requires-python in its pyproject.toml), or use a release of "
            "{asks} that supports this one"
        ).format(asks=by or translated("the code")),
    )


def _explain_missing_package(api_mismatch: ApiMismatch, versions: Mapping[str, str]) -> tuple[Text, Text]:
    """A package that is not installed: which package imports it, and that the import may be an optional one."""
    by = name_and_version(api_mismatch.asks, api_mismatch.asks_version or versions.get(api_mismatch.asks, ""))
    there = ", ".join(
        f"{name} {versions[name]}"
        for name in ("transformers", "torch", "vllm")
        if name in versions and name != api_mismatch.asks
    )
    because = (
        translated("{by} imports {name}, which is not installed").format(by=by, name=api_mismatch.subject)
        if by
        else _missing_attribute_text(api_mismatch)
    )
    if not api_mismatch.asks:
        return because, translated(
            "pip install {name} into the environment that runs this, or remove what imports it"
        ).format(name=api_mismatch.subject)
    return because, translated(
        "pip install {name} if you use that part of {asks}; if not, {asks} assumes that an optional package is "
        "installed: use the release of {asks} that matches the packages installed with it{there}"
    ).format(
        name=api_mismatch.subject, asks=api_mismatch.asks, there=Text(f" ({there})", f"（{there}）") if there else ""
    )


_BATCH_KWARGS_PATTERN = lazy_compile(r"(?i)\*\* ?\w*(?:input|batch|feature|sample|encod|example)")


def _comes_from_batch(api_mismatch: ApiMismatch) -> bool:
    """Whether the unexpected argument of a model's forward comes from the data, not from a framework's call."""
    if api_mismatch.form != "unexpected_keyword" or api_mismatch.subject.rpartition(".")[2] != "forward":
        return False
    return (
        api_mismatch.at is None
        or not api_mismatch.at.code
        or _BATCH_KWARGS_PATTERN.search(api_mismatch.at.code) is not None
    )


def _missing_attribute_text(api_mismatch: ApiMismatch) -> Text:
    subject, names = api_mismatch.subject, api_mismatch.names
    if api_mismatch.form == "unexpected_keyword":
        return Text(f"{subject} takes no argument {names[0]}", f"{subject} 没有参数 {names[0]}")
    if api_mismatch.form == "missing_arguments":
        listed = ", ".join(names)
        return Text(f"{subject} is called without {listed}", f"调用 {subject} 时缺少 {listed}")
    if api_mismatch.form == "argument_count":
        return Text(
            f"{subject} takes {names[0]} arguments and is given {names[1]}",
            f"{subject} 接受 {names[0]} 个参数，却传入 {names[1]} 个",
        )
    if api_mismatch.form == "no_attribute":
        return Text(f"{subject} has no {names[0]}", f"{subject} 没有 {names[0]}")
    if api_mismatch.form == "not_importable":
        return Text(f"{subject} has no {names[0]}", f"{subject} 中没有 {names[0]}")
    if api_mismatch.form == "undefined_symbol":
        return Text(
            f"its library misses {demangled_name(names[0])}, since it was compiled for another build of torch",
            f"其库找不到 {demangled_name(names[0])}，因为它是针对另一构建的 torch 编译的",
        )
    top = subject.partition(".")[0]
    if top != subject:
        return Text(f"{top} has no module {subject}", f"{top} 没有模块 {subject}")
    return Text(f"{subject} is not installed", f"没有安装 {subject}")


def _raised_message(exception: RaisedException) -> Text:
    said = _first_lines(exception.message.text)
    text = f"{exception.type}: {said}" if said else exception.type
    return Text(f"it raised {text}", f"抛出 {text}")


def _first_lines(text: str) -> str:
    """The message on one line, shortened if it is too long."""
    joined = " ".join(text.split())
    return joined if len(joined) <= _MAX_MESSAGE_LENGTH else f"{joined[:_MAX_MESSAGE_LENGTH]}…"


def _advice_in_message(message: Message) -> Text | None:
    """The advice or requirement contained in the message itself."""
    text = message.text[:4000]
    advised = list(islice(_ADVICE_PATTERN.finditer(text), 8))
    found = next((one for one in advised if one.group(1).lower().startswith("please")), None)
    found = found or (advised[0] if advised else REQUIREMENT_PATTERN.search(text))
    if found is None or _SIZES_OF_TORCH_PATTERN.match(text):
        return None
    advice = " ".join(found.group(1).split()).strip(" .")
    if advice == " ".join(text.split()).strip(" ."):
        return None  # The whole message was shown already.
    if advice.startswith(("Either ", "For ")):
        advice = f"{advice[0].lower()}{advice[1:]}"
    return Text(f"as the message says, {advice}", f"按消息所说：{advice}")
