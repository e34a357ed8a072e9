"""The environment variables of a rehearsal: which ones programs get, and failures because of those they don't."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence

from gonogo.confinement.variables import ProgramEnvironment, program_environment
from gonogo.evidence.rehearsal.chain import exception_chain
from gonogo.evidence.rehearsal.failures import exception_class_name
from gonogo.evidence.rehearsal.record import Failure, RankRecord, RehearsalRecord, UnsupportedPart
from gonogo.finding import UserError, translated
from gonogo.finding.redaction import MIN_SECRET_LENGTH, Redactor
from gonogo.finding.remedy import Purpose, Reason, rehearse_again
from gonogo.finding.secret_formats import is_secret
from gonogo.rehearse.launch.launch_texts import launch_source_texts
from gonogo.rehearse.request import RehearsalRequest

WITHHELD = Reason(
    translated("the environment variable {name} is set here but was not passed on: add --env {name}"),
    rehearse_again("--env", "{name}", purpose=Purpose.PASS_VARIABLE),
)
REPLACED = Reason(
    translated(
        "the environment variable {name} contains a secret, so the program got a placeholder: set a value "
        "with --env {name}=VALUE"
    ),
    rehearse_again("--env", "{name}=VALUE", purpose=Purpose.PASS_VARIABLE),
)
_VARIABLE_NOT_SET_PATTERN = re.compile(
    r"\bnot (?:been )?(?:set|defined|provided|specified|found|exported)\b|n't (?:been )?(?:set|defined|found)\b"
    r"|\bunset\b|\bundefined\b|unbound variable|parameter (?:null|not set)|\bmissing\b|\brequired?s?\b|\bis empty\b"
    r"|\benviron|\bmust (?:be )?(?:set|define|provide|specif|export)"
    r"|\b(?:please|to) (?:set|define|provide|specify|export)\b"
    r"|\bno value\b|\bgot None\b|\bis None\b|未设置|没有设置|未定义|未找到|环境变量|请设置|请先|缺少|不能为空|未指定",
    re.IGNORECASE,
)
_REJECTED_VALUE_PATTERN = re.compile(
    r"invalid|incorrect|expired|malformed|unauthori[sz]ed|forbidden|\b40[13]\b|denied|decode|decrypt|deserializ|parse"
    r"|bad (?:token|key|credential)|无效|过期|拒绝",
    re.IGNORECASE,
)
_ENVIRONMENT_ACCESS_PATTERN = re.compile(r"\benviron\b|\bgetenv\b")
_MAX_LINE_LENGTH = 64 << 10
_PLAIN_WORD_PATTERN = re.compile(r"[a-z]+")
"""An ordinary word: it counts as a variable's name only if it certainly is one."""


class ProgramVariables:
    """The variables of one rehearsal."""

    def __init__(self, base_environment: ProgramEnvironment, environ: Mapping[str, str]) -> None:
        self._given = base_environment
        self._redactor = Redactor(environ, base_environment.typed)
        whole = (value for name, value in base_environment.replaced.items() if is_secret(name, environ[name]))
        self.kept = Redactor(
            environ, (*base_environment.typed, *(one for one in whole if len(one) >= MIN_SECRET_LENGTH))
        )
        """Masks the placeholders of secrets as well, in what is kept."""

    @classmethod
    def from_request(cls, request: RehearsalRequest) -> ProgramVariables:
        """The variables of this process for a request. Raises UserError for an invalid ``--env``."""
        texts = launch_source_texts(request.command, os.getcwd())
        return cls(program_environment(os.environ, texts=texts, env_options=request.env), os.environ)

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which the programs are started."""
        return dict(self._given.environment)

    @contextlib.contextmanager
    def explain_user_errors(self) -> Iterator[None]:
        """Within the block, add the missing variable to a UserError that it caused, and mask secrets in each."""
        try:
            yield
        except UserError as error:
            text = error.text
            why = self.explain_missing_variable(text.en.split("; "))
            if why is not None:
                text = translated("{text}; {why}").format(text=text, why=why.why)
            raise error.reworded(self._redactor.redact_tree(text)) from None

    def redact_record(self, record: RehearsalRecord) -> RehearsalRecord:
        """The record without secrets; ranks that failed because of a withheld variable become unsupported."""
        for rank in record.ranks:
            why = self._failure_reason(rank)
            if why is not None:
                rank.unsupported.append(UnsupportedPart.of(_failure_text(rank), _failure_location(rank.failure), why))
                if rank.outcome == "raised":
                    rank.outcome = "unsupported"
        return self._redactor.redact_tree(record)

    def _failure_reason(self, rank: RankRecord) -> Reason | None:
        if rank.outcome == "killed":
            return self.explain_missing_variable(rank.events)
        if rank.failure is None or rank.outcome != "raised":
            return None
        return self._explain_failure(rank.failure)

    def _explain_failure(self, failure: Failure) -> Reason | None:
        for told in exception_chain(failure):
            key = told.message.strip().strip("'\"")
            if told.type.rpartition(".")[2] == "KeyError" and key in self._given.withheld:
                last = told.frames[-1].path if told.frames else ""
                if not _PLAIN_WORD_PATTERN.fullmatch(key) or os.path.basename(last) == "os.py":
                    return WITHHELD.format(name=key)
            if (why := self.explain_missing_variable(told.message.splitlines())) is not None:
                return why
            for frame in told.frames[-3:]:  # `int(os.environ.get("PORT"))`: the message doesn't name it
                if _ENVIRONMENT_ACCESS_PATTERN.search(frame.text) and (
                    name := _first_mentioned_name(self._given.withheld, frame.text)
                ):
                    return WITHHELD.format(name=name)
        return None

    def explain_missing_variable(self, lines: Sequence[str]) -> Reason | None:
        """The withheld or replaced variable to which the last lines of a program's output point; None if none."""
        for line in lines:
            line = line[:_MAX_LINE_LENGTH]
            if _VARIABLE_NOT_SET_PATTERN.search(line):
                certain = "unbound variable" in line or "parameter " in line
                names = [one for one in self._given.withheld if certain or not _PLAIN_WORD_PATTERN.fullmatch(one)]
                if name := _first_mentioned_name(names, line):
                    return WITHHELD.format(name=name)
            for name, value in self._given.replaced.items():
                shown = len(value) >= MIN_SECRET_LENGTH and value in line
                if shown or (_REJECTED_VALUE_PATTERN.search(line) and _first_mentioned_name([name], line)):
                    return REPLACED.format(name=name)
        return None


def _first_mentioned_name(names: Sequence[str], text: str) -> str:
    """The first of the names that occurs in a text as a word; empty if there is none."""
    return next((one for one in names if one in text and re.search(rf"(?<!\w){re.escape(one)}(?!\w)", text)), "")


def _failure_text(rank: RankRecord) -> str:
    if rank.failure is None:
        return next((event for event in rank.events), "")
    first = rank.failure.message.strip().partition("\n")[0][:160]
    return f"{exception_class_name(rank.failure)}: {first}".removesuffix(": ")


def _failure_location(failure: Failure | None) -> str:
    frame = None if failure is None else failure.innermost("user") or failure.innermost("library")
    return f"{frame.path}:{frame.line}" if frame is not None else "unknown"
