"""Create a new hazard in a checkout, for ``gonogo hazards --new``: a page, optional code, and failing test cases."""

from __future__ import annotations

from gonogo.finding import Text, UserError, translated
from gonogo.hazards.index import hazard_of
from gonogo.hazards.loader import class_name
from gonogo.hazards.pack import FOLDER, NAME_PATTERN, SHIPPED
from gonogo.hazards.page import CHINESE, ENGLISH, HEADINGS

_FRONT_MATTER = """\
title.en = "TODO: what fails, as one line of a report"
title.zh = "待写：会失败的是什么，报告中的一行"
"""
_LOG_FRONT_MATTER = """\
# Words of the lines that are looked for; a large log is searched for these alone.
log_words = ["TODO: words of the error"]
confirm.en = "TODO: what makes sure of it, where a sign is not certain"
confirm.zh = "待写：不确定时如何确认"

# A sign is words of an exception or of a line (a pattern of RE2), and what has to be so besides: types, frames, beside.
# What log_rule.py, config_rule.py, argument_rule.py and version_rule.py say at their tops can be declared.
[[signs]]
says = 'TODO: words of the error'
certainty = "likely"
"""
_SECTIONS = {
    "What happens": translated("TODO: the symptom: the error, and where it is raised."),
    "Why": translated("TODO: why it happens."),
    "Example": Text("```python\nTODO()  # wrong\nTODO()  # right\n```", ""),
    "Cure": translated("- TODO: what to change\n- Or TODO: what else would work"),
    "When it is safe": translated("TODO: where this is not a problem."),
    "Sources": translated("- https://example.com/TODO: what this public page shows"),
}
_SUMMARY = translated("TODO: one line that says what it is.")
_MODULE_TEMPLATE = '''\
from gonogo.hazards.rule import Findings, Hazard, Run, Script, translated


class {name}(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """TODO: where it is found, and where it is not."""
        for call in script.calls("TODO.function"):
            yield self.finding(translated("TODO: what stands there, with its values."), spans=call.place.span())
'''
_BAD_LOG = """\
Traceback (most recent call last):
  File "train.py", line 9, in <module>
    trainer.train()
RuntimeError: replace this log by one of a run that fails so, and let a sign of the page find it
"""
_GOOD_LOG = """\
Traceback (most recent call last):
  File "train.py", line 9, in <module>
    trainer.train()
RuntimeError: replace this log by one that looks alike and has another cause
"""
_LAUNCH_SCRIPT = "torchrun --nproc_per_node 8 train.py\n"
_BAD_SCRIPT = "# Replace this by a short program in which the hazard is found.\n"
_GOOD_SCRIPT = "# Replace this by one that looks alike and in which nothing is wrong.\n"
_FILE_CREATED = translated("created {file}")
_NEXT_STEPS = translated(
    "Next: fill in every TODO, in both languages; replace the cases; run\n    python -m pytest -q -k "
    "{name} tests/test_hazards.py tests/test_hazard_cases.py\nuntil it passes (nothing else is needed: gonogo finds "
    "the new hazard on its next run). The Chinese for the\ncode's messages goes into "
    "src/gonogo/finding/zh.json: `make translations` lists it. Then run `make snapshots`, and read\n"
    "tests/hazards/{name}/expected.txt as a user would. CONTRIBUTING.md says what a handler can query."
)


def new_hazard(name: str | None, theme: str | None, *, code: bool, language: str) -> str:
    """Create the files of a hazard; returns what was created and the next steps. Raises UserError if that fails."""
    if name is None:
        raise UserError(translated("--code needs --new NAME"))
    theme = _check_name_and_theme(name, theme)
    root = FOLDER.parents[2]
    cases = root / "tests" / "hazards" / name
    page = FOLDER / theme / f"{name.replace('-', '_')}.md"
    files = {page: page_text(declared=not code)}
    if code:
        files[page.with_suffix(".py")] = _MODULE_TEMPLATE.format(name=class_name(name))
        for case, script in (("bad_train", _BAD_SCRIPT), ("good_train", _GOOD_SCRIPT)):
            files |= {cases / case / "run.sh": _LAUNCH_SCRIPT, cases / case / "train.py": script}
    else:
        files |= {cases / "bad.log": _BAD_LOG, cases / "good.log": _GOOD_LOG}
    for path in files:
        if path.exists():
            raise UserError(translated("{path} already exists: choose another name").format(path=path))
    try:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(translated("{path} can't be written: {why}").format(path=path, why=error.strerror)) from None
    made = [_FILE_CREATED.format(file=str(path.relative_to(root))).in_language(language) for path in files]
    return "\n".join((*made, _NEXT_STEPS.format(name=name).in_language(language))) + "\n"


def _check_name_and_theme(name: str, theme: str | None) -> str:
    """The theme of a new hazard. Raises UserError for an invalid name or theme, or outside a checkout."""
    if SHIPPED.exists() or not (FOLDER.parents[2] / "tests" / "hazards").is_dir():
        raise UserError(
            translated(
                "--new {name}: {folder} is an installed gonogo; hazards are added to a checkout of it (`make setup` "
                "there)"
            ).format(name=name, folder=FOLDER.parent)
        )
    if not NAME_PATTERN.fullmatch(name):
        raise UserError(
            translated(
                "--new {name}: a hazard's name is words in lower case with hyphens, such as zero3-moe-hang"
            ).format(name=repr(name))
        )
    if (known := hazard_of(name)) is not None:
        raise UserError(
            translated(
                "--new {name}: already exists ({file}): add a case or a sign to it, or choose another name"
            ).format(name=name, file=known.page.file)
        )
    themes = sorted({path.parent.name for path in FOLDER.glob("*/[!_]*.md")})
    found = theme or next((one for one in themes if name.startswith(f"{one.replace('_', '-')}-")), None)
    if found in themes:
        return found
    raise UserError(
        translated("--theme {theme}: must be one of {themes}").format(theme=theme or "NAME", themes=", ".join(themes))
    )


def page_text(*, declared: bool) -> str:
    """The template of a page; it is a valid page, so that gonogo keeps working."""
    parts = ["+++\n" + _FRONT_MATTER + (_LOG_FRONT_MATTER if declared else "") + "+++\n"]
    for language, start in (("en", ENGLISH), ("zh", CHINESE)):
        parts.append(f"{start}\n\n{_SUMMARY.in_language(language)}\n")
        texts = ((heading.in_language(language), _SECTIONS[heading.en].in_language(language)) for heading in HEADINGS)
        parts += [f"## {heading}\n{text}\n" for heading, text in texts if text]  # the example isn't translated
    return "\n".join(parts)
