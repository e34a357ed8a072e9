"""What an exception's own words and its line come to, where no hazard knows more: why it failed, and what to do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from gonogo.diagnose.kinds_of_attributes import implements, told_by_its_attribute
from gonogo.diagnose.kinds_of_messages import told_by_its_words
from gonogo.diagnose.kinds_of_objects import told_by_its_kind
from gonogo.evidence.failure.failure_facts import raised_in_your_line
from gonogo.evidence.failure.misfit import (
    FORMS,
    FORMS_OF_CALLS,
    HANDS_ON,
    Misfit,
    config_of_trainer,
    library_package,
    misfit_in,
)
from gonogo.evidence.failure.native import readable
from gonogo.evidence.patterns import compiled_when_used
from gonogo.finding import Text, translated
from gonogo.finding.failure import CodePlace, FailureFacts, Message, RaisedException

_MAX_MESSAGE = 400
_CHECK = compiled_when_used(r"^assert\s+(.+?)(?:,\s*(?:[f\"'(\\].*)?)?$")
_DIVISOR = compiled_when_used(r"(?://|/|%)=? ?\(?([A-Za-z_][\w.]*(?:\[[^\]]{1,40}\]|\([^()]{0,80}\))?)")
_NONE_USED = compiled_when_used(
    r"object has no attribute '(\w{1,120})'|object is not (subscriptable|callable|iterable)"
)
_NONE_OPERAND = compiled_when_used(
    r"(?:unsupported operand type\(s\) for (\S{1,3}?):|'(\S{1,2})' not supported between instances of) "
    r"'(\w{1,60})' and '(\w{1,60})'"
)
_MOST_CODE = 2000
"""Characters of a statement that are looked at: a longer one was not written by hand."""
_SUBSCRIPT = compiled_when_used(r"(?<![\w.])([A-Za-z_][\w.]*(?:\[[^\]]{1,40}\])?)\[[\"'fb]")
_ADVICE = compiled_when_used(
    r"(?i)(?:^|(?<=[.!;:\n)]) ?)((?:please|you (?:should|need to|must|can|may)|try|consider|make sure|use |set |call "
    r"|install |pass |add |remove |reduce |increase |to fix|instead,? |specify|enable|disable|upgrade|downgrade|adjust "
    r"|run )"
    r"[^\n]{3,300}?)"
    r"(?:\.(?=\s|$)|$|\n)"
)
_REQUIRES = compiled_when_used(
    r"(?i)((?:[^.\n]|\.(?=\S)){3,200}?(?: must (?:be|not|have|match)| should (?:be|not|match)| (?:is|are) required"
    r"| requires? | needs? to be"
    r"| only (?:support|work|implemented)| not supported| (?:cannot|can't) be used)(?:[^.\n]|\.(?=\S)){0,200})"
)
_NOT_INITIALIZED = compiled_when_used(r"(.{3,120}?) is not initialized")


class Statement(NamedTuple):
    """Why it failed as a clause, what to change, and whether no other reading is left of what happened."""

    because: Text
    change: Text | None
    sure: bool
    at: CodePlace | None = None
    """Where it is to be read, if not where it was raised: the call of a function that only checks."""


def statement_of(facts: FailureFacts, versions: Mapping[str, str]) -> Statement | None:
    """What the last exception of the chain says; None where the log has none."""
    if not facts.chain:
        return None
    raised = _telling(facts.chain)
    misfit = misfit_in(facts, versions)
    because, change = told_by_its_kind(raised)
    if because is None:
        because, change = told_by_its_attribute(raised, misfit, versions)
    if because is None:
        because, change = told_by_its_words(raised)
    if because is None and misfit is not None and raised.message.form in FORMS:
        because, change = _of_misfit(misfit, versions)
    elif because is None:
        because, change = _by_form(raised)
    because = because or _as_said(raised)
    change = change or _advice(raised.message) or _where_to_look(facts)
    at = _checked_at(raised)
    if at is None and raised is not facts.chain[-1] and raised.frames:
        at = raised.frames[-1]
    if at is None and misfit is not None and raised.frames and raised.frames[-1].function in HANDS_ON:
        at = misfit.at
    if raised is not facts.chain[-1] and _cleans_up(raised, facts.chain[-1]):
        because = translated(
            "{because}; the {type} after it only hides it (cleaning up after the first failure)"
        ).format(because=because, type=facts.chain[-1].type)
    return Statement(because, change, raised_in_your_line(raised) and not facts.collectives, at)


_CHECKS = compiled_when_used(r"(?i)ensure|assert|check|validate|verify|raise_|require|^_?divide$")


def _checked_at(raised: RaisedException) -> CodePlace | None:
    """The frame that calls a function whose only work is to check: its line has the names that are meant."""
    frames = raised.frames
    if len(frames) < 2 or not frames[-2].code or not _CHECKS.search(frames[-1].function):
        return None
    name = frames[-1].function.rpartition(".")[2]
    return frames[-2] if f"{name}(" in frames[-2].code else None


def _telling(chain: tuple[RaisedException, ...]) -> RaisedException:
    """The exception of the chain that says most: the last, unless it only passes on what another says."""
    last = chain[-1]
    if len(chain) > 1 and (
        not last.message.text or last.message.text.startswith("Hard failure due to") or _cleans_up(chain[-2], last)
    ):
        return chain[-2]
    return last


def _cleans_up(first: RaisedException, last: RaisedException) -> bool:
    """Whether the second was only raised because the first had left a function before its variables were set."""
    if last.type not in ("UnboundLocalError", "NameError") or not last.frames:
        return False
    at = last.frames[-1]
    return any((frame.path, frame.function) == (at.path, at.function) for frame in first.frames)


def _by_form(raised: RaisedException) -> tuple[Text | None, Text | None]:
    message, code = raised.message, raised.frames[-1].code[:_MOST_CODE] if raised.frames else ""
    if message.form == "missing_key":
        return _of_key(message, code, raised)
    if message.form == "state_dict":
        return translated("the keys of the checkpoint do not match those of {model}").format(
            model=message.subject or "the model"
        ), None
    if message.form == "undefined_symbol":
        package = library_package(message.subject)
        return (
            translated("{package} was compiled for another build: its library misses {symbol}").format(
                package=package, symbol=readable(message.names[0])
            ),
            translated(
                "reinstall or rebuild {package} for the installed torch (a wheel for its version, CUDA and C++ ABI)"
            ).format(package=package),
        )
    if message.subject == "NoneType" or (raised.type == "TypeError" and "'NoneType'" in message.text):
        return _of_none(message, code)
    if raised.type == "ZeroDivisionError":
        return _of_zero(code)
    if (checked := _checked_at(raised)) is not None and message.text:
        return _of_call(checked, message), None
    if raised.type == "AssertionError":
        return _of_assertion(message, code)
    if found := _NOT_INITIALIZED.search(message.text):
        return _uninitialized(found.group(1)), None
    return None, None


def _of_key(message: Message, code: str, raised: RaisedException) -> tuple[Text, Text | None]:
    key = message.names[0][:120]
    if message.subject == "config":
        return (
            translated("the config has no entry '{key}', which the program reads").format(key=key),
            translated(
                "add the section or key {key} to the config (on the command line: +{key}=…), as the entry point that "
                "reads "
                "it expects"
            ).format(key=key),
        )
    holder = next((found.group(1) for found in _SUBSCRIPT.finditer(code) if key in code), "")
    if holder:
        return (
            translated("{holder} has no key '{key}'").format(holder=holder, key=key),
            translated(
                "print {holder}.keys() at that line: either whatever fills it (the data set's columns, the "
                "collator, another release of the library) uses a different name, or the name is mistyped"
            ).format(holder=holder),
        )
    if (found := _LOOKED_UP.search(code)) is not None and _is_a_value(key):
        table, name = found.groups()
        return (
            translated("{name} is {key} there, and {table} has no entry for it").format(
                name=name, key=key, table=table
            ),
            translated(
                "set {setting} to a value that {table} has; {key} mostly means that it was left unset, which another "
                "release may still accept"
            ).format(setting=name.rpartition(".")[2], table=table, key=key),
        )
    return (translated("{where} has no entry '{key}'").format(where=_what_is_read(raised), key=key), None)


_LOOKED_UP = compiled_when_used(r"(?<![\w.])([A-Za-z_][\w.]*)\[([A-Za-z_][\w.]*)\]")
_VALUE = compiled_when_used(r"^(?:None|True|False|-?\d{1,9})$")


def _is_a_value(key: str) -> bool:
    """Whether a key is a value of Python's, so that it was computed and not written as a name."""
    return _VALUE.search(key) is not None


def _what_is_read(raised: RaisedException) -> Text:
    function = raised.frames[-1].function if raised.frames else ""
    if function and not function.startswith("<"):
        return Text(f"what {function} looks up", f"{function} 所查找的对象")
    return translated("what is looked up")


def _of_none(message: Message, code: str) -> tuple[Text | None, Text | None]:
    used = _NONE_USED.search(message.text)
    what = ""
    if used is not None and used.group(1):
        found = re.search(rf"([A-Za-z_][\w.\[\]'\"]*)\.{re.escape(used.group(1))}\b", code)
        what = found.group(1) if found is not None else ""
    elif used is not None:
        ends = {"subscriptable": r"\[", "callable": r"\("}.get(used.group(2), "")
        found = re.search(rf"([A-Za-z_][\w.]*){ends}", code) if ends else None
        what = found.group(1) if found is not None else ""
    elif operands := _NONE_OPERAND.search(message.text):
        what = _none_operand(operands, code)
    if not what:
        return None, None
    return (
        translated("{what} is None there").format(what=what),
        translated(
            "find what leaves {what} as None (an entry that has no value, an argument that was not passed, a branch "
            "that "
            "returns nothing), and skip or fill it"
        ).format(what=what),
    )


def _none_operand(operands: re.Match[str], code: str) -> str:
    """The side of the operator that holds None, where the line names it."""
    operator = re.escape(operands.group(1) or operands.group(2))
    name = r"([A-Za-z_][\w.]*(?:\[[^\]]{1,40}\])?)"
    left, right = operands.group(3) == "NoneType", operands.group(4) == "NoneType"
    if left == right:
        return ""
    found = re.search(rf"{name}\s*{operator}=?\s" if left else rf"{operator}=?\s*{name}", code)
    return found.group(1) if found is not None else ""


def _of_zero(code: str) -> tuple[Text | None, Text | None]:
    found = _DIVISOR.search(code)
    if found is None:
        return None, None
    return (
        translated("it divides by {name}, which is 0").format(name=found.group(1)),
        translated("give {name} a value above 0").format(name=found.group(1).rpartition(".")[2]),
    )


def _of_assertion(message: Message, code: str) -> tuple[Text | None, Text | None]:
    check = _CHECK.match(code)
    said = _first_lines(message.text)
    tested = (check.group(1) if check is not None else code).strip().rstrip("\\,").strip()
    if found := _NOT_INITIALIZED.search(message.text):
        return _uninitialized(found.group(1)), None
    # What is raised is often called, a name or a bracket of the call: only an assertion's own line is a check.
    if not tested or tested.startswith(("raise ", "assert")) or (check is None and not code.startswith("assert")):
        return (Text(f"a check does not hold: {said}", f"一项检查不成立：{said}"), None) if said else (None, None)
    if not said:
        return Text(f"the check `{tested}` does not hold", f"检查 `{tested}` 不成立"), None
    return Text(f"the check `{tested}` does not hold: {said}", f"检查 `{tested}` 不成立：{said}"), _padded(
        tested, message
    )


_MULTIPLE = compiled_when_used(r"^([A-Za-z_][\w.]*(?:\[[^\]]{1,30}\])?) % ([A-Za-z_][\w.]*|\d{1,9}) == 0$")


def _padded(tested: str, message: Message) -> Text | None:
    """What to do about ``a % b == 0``, where the message has no advice of its own."""
    found = _MULTIPLE.match(tested)
    if found is None or _ADVICE.search(message.text[:4000]):
        return None
    return translated(
        "make {whole} a multiple of {divisor}: pad it, or choose sizes (tokens of a batch, rows that an expert gets, "
        "a parallel size) that are one"
    ).format(whole=found.group(1), divisor=found.group(2))


def _of_call(place: CodePlace, message: Message) -> Text:
    said, code = _first_lines(message.text), place.code.rstrip(",(").strip()
    return Text(f"in `{code}`, {said}", f"`{code}` 中：{said}")


def _uninitialized(what: str) -> Text:
    return Text(
        f"the {what} was asked for before it was set up: this process never called what sets it up, or the caller is "
        f"written "
        "for another release, which sets it up elsewhere",
        f"{what} 尚未建立就被使用：本进程没有调用建立它的函数，或调用方是为在别处建立它的另一版本编写的",
    )


def _of_misfit(misfit: Misfit, versions: Mapping[str, str]) -> tuple[Text | None, Text | None]:
    if misfit.form == "no_module" and "." not in misfit.subject:
        return _of_absent_package(misfit, versions)
    what = _what_is_lacking(misfit)
    if _is_of_the_batch(misfit):
        name = misfit.names[0]
        return (
            translated(
                "the batch has an entry '{name}' that the model's forward does not accept: the tokenizer or the "
                "collator adds it"
            ).format(name=name),
            translated(
                "leave {name} out: return_{name}=False when tokenizing, remove_unused_columns=True, or drop it in the "
                "collator; the tokenizer class may be another model's"
            ).format(name=name),
        )
    lacks, asks = _named(misfit.lacks, misfit.lacks_version), _named(misfit.asks, misfit.asks_version)
    if misfit.asks and misfit.lacks:
        because = translated("{asks} and {lacks} are incompatible: {what}").format(asks=asks, lacks=lacks, what=what)
        change = translated(
            "install the release of {lacks} that {asks} needs (its requirements), or a release of {asks} made "
            "for {there}"
        ).format(lacks=misfit.lacks, asks=misfit.asks, there=lacks)
        return because, change
    if misfit.lacks and misfit.form == "no_attribute" and not misfit.subject.islower() and "." not in misfit.subject:
        return what, translated(
            "the code that needs it expects another kind of model or object, or another release of {lacks}: "
            "compare the release that it was written for with {there}"
        ).format(lacks=misfit.lacks, there=lacks)
    if misfit.lacks and misfit.by_user and misfit.form in FORMS_OF_CALLS:
        config = config_of_trainer(misfit.subject)
        return what, translated(
            "{config}change your call to what {there} accepts, or install the release of {lacks} that it was "
            "written for"
        ).format(
            config=Text(
                f"give {', '.join(misfit.names)} to {config}, if it is a setting of the training; or ",
                f"若 {', '.join(misfit.names)} 是训练设置，请放入 {config}；或",
            )
            if config
            else "",
            there=lacks,
            lacks=misfit.lacks,
        )
    if misfit.lacks:
        because = translated("{what}").format(what=what)
        change = translated(
            "install a release of {lacks} that has it, or change the call: the code that needs it was written "
            "for a different release than {there}"
        ).format(lacks=misfit.lacks, there=lacks)
        return because, change
    if misfit.asks and misfit.form in FORMS_OF_CALLS and (by := implements(misfit, versions)):
        there = _named(by, versions.get(by, ""))
        return (
            translated(
                "{asks} makes this call, and {what}: its class implements an interface of {package} for {there}, and "
                "was "
                "written for another release of {package}"
            ).format(asks=asks, what=what, package=misfit.asks, there=there),
            translated(
                "use the release of {package} that {there} was made for (its requirements), or a later release of {by}"
            ).format(package=misfit.asks, there=there, by=by),
        )
    if misfit.asks:
        because = translated("{asks} makes this call, and {what}").format(asks=asks, what=what)
        change = translated(
            "install the releases that {asks} is made for (its requirements): what it calls is from a different release"
        ).format(asks=misfit.asks)
        return because, change
    if misfit.by_user:
        return what, translated(
            "change the call in your line, or install the release that it was written for (version)"
        )
    told = ", ".join(f"{name} {version}" for name, version in list(versions.items())[:6])
    if told:
        return what, translated(
            "caller and callee come from different releases; the run has {told}: install those that the "
            "framework's requirements name"
        ).format(told=told)
    return what, translated(
        "caller and callee come from different releases: give the lines above this one, or pip freeze, and "
        "compare the versions of both packages"
    )


def _of_absent_package(misfit: Misfit, versions: Mapping[str, str]) -> tuple[Text, Text]:
    """A package that is not installed: who imports it, and that he may take it for installed without need."""
    by = _named(misfit.asks, misfit.asks_version or versions.get(misfit.asks, ""))
    there = ", ".join(
        f"{name} {versions[name]}"
        for name in ("transformers", "torch", "vllm")
        if name in versions and name != misfit.asks
    )
    because = (
        translated("{by} imports {name}, which is not installed").format(by=by, name=misfit.subject)
        if by
        else _what_is_lacking(misfit)
    )
    if not misfit.asks:
        return because, translated(
            "pip install {name} into the environment that runs this, or remove what imports it"
        ).format(name=misfit.subject)
    return because, translated(
        "pip install {name} if you use that part of {asks}; if not, {asks} takes an optional package for "
        "installed: take the release of {asks} that is made for what is beside it{there}"
    ).format(name=misfit.subject, asks=misfit.asks, there=Text(f" ({there})", f"（{there}）") if there else "")


_BATCH = compiled_when_used(r"(?i)\*\* ?\w*(?:input|batch|feature|sample|encod|example)")


def _is_of_the_batch(misfit: Misfit) -> bool:
    """True where a model's forward gets what the data has, rather than what a framework's own call names."""
    if misfit.form != "unexpected_keyword" or misfit.subject.rpartition(".")[2] != "forward":
        return False
    return misfit.at is None or not misfit.at.code or _BATCH.search(misfit.at.code) is not None


def _what_is_lacking(misfit: Misfit) -> Text:
    subject, names = misfit.subject, misfit.names
    if misfit.form == "unexpected_keyword":
        return Text(f"{subject} takes no argument {names[0]}", f"{subject} 没有参数 {names[0]}")
    if misfit.form == "missing_arguments":
        listed = ", ".join(names)
        return Text(f"{subject} is called without {listed}", f"调用 {subject} 时缺少 {listed}")
    if misfit.form == "argument_count":
        return Text(
            f"{subject} takes {names[0]} arguments and is given {names[1]}",
            f"{subject} 接受 {names[0]} 个参数，却传入 {names[1]} 个",
        )
    if misfit.form == "no_attribute":
        return Text(f"{subject} has no {names[0]}", f"{subject} 没有 {names[0]}")
    if misfit.form == "not_importable":
        return Text(f"{subject} has no {names[0]}", f"{subject} 中没有 {names[0]}")
    if misfit.form == "undefined_symbol":
        return Text(
            f"its library misses {readable(names[0])}, since it was compiled for another build of torch",
            f"其库找不到 {readable(names[0])}，因为它是针对另一构建的 torch 编译的",
        )
    top = subject.partition(".")[0]
    if top != subject:
        return Text(f"{top} has no module {subject}", f"{top} 没有模块 {subject}")
    return Text(f"{subject} is not installed", f"没有安装 {subject}")


def _named(package: str, version: str) -> str:
    return f"{package} {version}".strip()


def _as_said(raised: RaisedException) -> Text:
    said = _first_lines(raised.message.text)
    text = f"{raised.type}: {said}" if said else raised.type
    return Text(f"it raised {text}", f"抛出 {text}")


def _first_lines(text: str) -> str:
    """The whole message as one line, cut where it gets long."""
    joined = " ".join(text.split())
    return joined if len(joined) <= _MAX_MESSAGE else f"{joined[:_MAX_MESSAGE]}…"


def _advice(message: Message) -> Text | None:
    """What the message itself tells to do, or to hold to."""
    text = message.text[:4000]
    found = _ADVICE.search(text) or _REQUIRES.search(text)
    if found is None:
        return None
    advice = " ".join(found.group(1).split()).strip(" .")
    if advice == " ".join(text.split()).strip(" ."):
        return None  # All of it was told already.
    return Text(f"as the message says, {advice}", f"按消息所说：{advice}")


_SETTING_NAME = compiled_when_used(r"(?<![\w/])[a-z][a-z0-9]*(?:_[a-z0-9]+)+(?![\w/(])")


def _demanded(raised: RaisedException) -> tuple[str, ...]:
    """The names in what a check demands, as settings are written."""
    if raised.type not in ("ValueError", "AssertionError"):
        return ()
    found = _REQUIRES.search(raised.message.text[:4000])
    return tuple(dict.fromkeys(_SETTING_NAME.findall(found.group(1))))[:3] if found is not None else ()


def _calling_package(frames: tuple[CodePlace, ...]) -> CodePlace | None:
    """The frame of another package that called into the one that raised, where no user's frame stands between."""
    if not frames or frames[-1].package in ("", "torch"):
        return None
    for frame in reversed(frames):
        if frame.package != frames[-1].package and frame.function not in HANDS_ON and frame.owner != "python":
            return frame if frame.package and frame.package not in _RUN_ANYTHING else None
    return None


_NO_CODE = compiled_when_used(r"\bpid=\d|\bERROR\b")
"""What stands in a line of a log, where the line of code was left out."""
_RUN_ANYTHING = ("torch", "ray", "hydra-core", "hydra", "fire", "click", "typer")
"""Packages that call whatever program they are given."""


def _where_to_look(facts: FailureFacts) -> Text | None:
    at, yours = facts.at, facts.your_line
    if at is not None and (caller := _calling_package(facts.chain[-1].frames)) is not None:
        code = " ".join(caller.code[:200].split())
        code = "" if _NO_CODE.search(code) else code
        return translated(
            "it is {asks} that calls {lacks} here ({place}{code}): see whether a setting of yours asks it to; if not, "
            "use releases of {asks} and {lacks} that belong together"
        ).format(
            asks=_named(caller.package, caller.release),
            lacks=_named(at.package, at.release),
            place=f"{caller.path.replace(chr(92), '/').rpartition('/')[2]}:{caller.line}",
            code=Text(f", `{code}`", f"，`{code}`") if code else "",
        )
    if yours is not None:
        place = f"{yours.path}:{yours.line}"
        return Text(f"look at your line {place}", f"请看你自己的 {place}")
    if at is not None and at.package and (named := _demanded(facts.chain[-1])):
        return translated(
            "adjust {names} until it holds; a later or earlier release of {package} may not demand it"
        ).format(names=", ".join(named), package=at.package)
    if at is not None and at.package:
        where = f"{at.module}.{at.function}" if at.module else at.function
        release = _named(at.package, at.release)
        return Text(
            f"read {where} of {release} at line {at.line}, where it is raised; a later or earlier release of "
            f"{at.package} may "
            "differ",
            f"请看 {release} 中抛出它的 {where}（第 {at.line} 行）；{at.package} 的其他版本可能不同",
        )
    return None
