"""``gonogo diagnose --pack`` and ``--reader``: the evidence for a reader, and a language model's reading of it."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gonogo.check.static_findings import StaticFindings
from gonogo.diagnose.findings import LoggedFailure
from gonogo.diagnose.pack.pack import ReaderPack, make_reader_pack
from gonogo.diagnose.reader.claims import check_claims
from gonogo.diagnose.reader.client import NoAnswerError
from gonogo.diagnose.reader.model_answer import MalformedAnswerError, ModelAnswer, parse_model_answer
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.finding import Report, Text, UserError, translated
from gonogo.finding.second_opinion.model_reading import ModelReading

_UNUSABLE_ANSWER = translated("the model's answer can't be understood: {why}")
_ANSWER_PROBLEMS = {
    "no JSON object": translated("it contains no JSON object"),
    "no cause": translated("it names no cause"),
}

if TYPE_CHECKING:
    from gonogo.diagnose.reader.client import ModelServer
    from gonogo.diagnose.reader.model_answer import ModelAnswer
    from gonogo.finding.second_opinion.model_reading import Proof

_DATA_TO_SEND = translated("--reader sends this to {host} ({address}), about {tokens} tokens:")
_SENDING = translated("sending the evidence (about {tokens} tokens) to {model} at {host}")
_CONFIRM_SEND = translated("Send it to {host}? [y/N] ")
_NO_TERMINAL_TO_ASK = translated(
    "--reader sends what the log shows to {host}, and there is no terminal to ask on: review it with "
    "--format pack, then add --yes"
)
_SENDING_DECLINED = translated("nothing was sent: you declined")
_NOTHING_TO_COMPARE = translated(
    "--upstream: no exception names a function, argument or line of a package whose releases could be compared"
)


@dataclass(frozen=True)
class ReaderOptions:
    """The values of ``--reader`` and of the options that go with it."""

    server: ModelServer
    yes: bool = False
    command: Sequence[str] = ()
    gpus: str | None = None
    host_memory: str | None = None
    environment: Path | None = None
    language: str = "en"


def with_reader_pack(failure: LoggedFailure, report: Report, language: str) -> Report:
    """Add the evidence for a reader to the report."""
    return replace(report, pack=_reader_pack(failure, report, language).text)


def _reader_pack(failure: LoggedFailure, report: Report, language: str) -> ReaderPack:
    return make_reader_pack(failure.log, report, failure.files, language=language)


def with_model_reading(failure: LoggedFailure, report: Report, options: ReaderOptions) -> Report:
    """Add a language model's reading of the failure to the report, if the user agrees to send the evidence.

    Raises UserError if consent is needed and there is no terminal to ask for it.
    """

    from gonogo.finding.second_opinion.model_reading import ModelReading

    server = options.server
    pack = _reader_pack(failure, report, "en")
    if not _may_send(pack, server, options):
        return replace(report, reading=ModelReading(server.model, server.host, failed=_SENDING_DECLINED))
    reading, answer = read_with_model(server.model, server.host, server.ask, pack, failure.log, failure.files)
    if answer is not None and answer.changes and options.command:
        reading = replace(reading, proof=_prove_change(answer, options))
    return replace(report, reading=reading)


def _may_send(pack: ReaderPack, server: ModelServer, options: ReaderOptions) -> bool:
    """Whether the user agrees to send the pack to the server; asked only the first time for each server."""
    from gonogo.prepare.prompts import ask, print_lines, prompt_language

    place = _consent_file(server)
    with prompt_language(options.language):
        if not (options.yes or place.is_file()):
            head = _DATA_TO_SEND.format(
                host=server.host, address=_without_credentials(server.address), tokens=pack.tokens
            )
            lines = [head, *(Text(f"  {line}", f"  {line}") for line in pack.text.splitlines())]
            answer = ask(lines, _CONFIRM_SEND.format(host=server.host), default=False)
            if answer is None:
                raise UserError(_NO_TERMINAL_TO_ASK.format(host=server.host))
            if not answer:
                return False
        else:
            print_lines([_SENDING.format(tokens=pack.tokens, model=server.model, host=server.host)])
    with contextlib.suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"{_without_credentials(server.address)}\n", encoding="utf-8")
    return True


def _consent_file(server: ModelServer) -> Path:
    """The file that records that the user agreed to a server."""
    from gonogo.prepare.packages.places import state_folder

    return state_folder() / "readers" / hashlib.sha256(_without_credentials(server.address).encode()).hexdigest()[:24]


def _without_credentials(address: str) -> str:
    """An address without credentials, query and fragment."""
    from urllib.parse import urlsplit, urlunsplit

    parts = urlsplit(address)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))


def _prove_change(answer: ModelAnswer, options: ReaderOptions) -> Proof:
    """Rehearse the proposed change; if that is impossible, the result says why."""
    import msgspec

    from gonogo.finding.second_opinion.model_reading import Proof
    from gonogo.rehearse.answer import rehearse_uninterrupted
    from gonogo.rehearse.display import live_display
    from gonogo.rehearse.launch.queued import with_job_from_file
    from gonogo.rehearse.request import RehearsalRequest
    from gonogo.rehearse.workers.scratch import scratch_folder
    from gonogo.trials.cure.proposed import Proposal, prove_proposals
    from gonogo.trials.cure.request import CureRequest

    proposals = [msgspec.convert(msgspec.to_builtins(change), Proposal) for change in answer.changes]
    try:
        rehearsal = with_job_from_file(
            RehearsalRequest(
                command=list(options.command),
                gpus=options.gpus,
                host_memory=options.host_memory,
                environment=options.environment,
                yes=options.yes,
            )
        )
        with scratch_folder() as scratch, live_display(options.language) as on_progress:
            return prove_proposals(proposals, CureRequest(rehearsal), scratch, rehearse_uninterrupted, on_progress)
    except UserError as error:
        return Proof(False, translated("the proposed change could not be rehearsed: {why}").format(why=error.text))


def with_upstream_facts(failure: LoggedFailure, report: Report, language: str) -> Report:
    """Add differences between releases of the failing package to the report."""
    from gonogo.prepare.prompts import print_lines, prompt_language
    from gonogo.trials.upstream.compare import upstream_facts

    if report.failure is None or not report.failure.chain:
        return replace(report, notes=(*report.notes, _NOTHING_TO_COMPARE))
    with prompt_language(language):
        facts = upstream_facts(
            report.failure.chain, failure.log.setup.version_texts, report_progress=lambda text: print_lines([text])
        )
    notes = report.notes if facts else (*report.notes, _NOTHING_TO_COMPARE)
    return replace(report, upstream=facts, notes=notes)


def read_with_model(
    model: str, server: str, ask_model: Callable[[str], str], pack: ReaderPack, log: FailureLog, files: StaticFindings
) -> tuple[ModelReading, ModelAnswer | None]:
    """A model's reading of a pack, and its parsed answer, which is None if it gave no usable one."""
    try:
        answer = parse_model_answer(ask_model(pack.text))
    except NoAnswerError as error:
        return ModelReading(model, server, failed=error.why), None
    except MalformedAnswerError as error:
        return ModelReading(model, server, failed=_UNUSABLE_ANSWER.format(why=_ANSWER_PROBLEMS[str(error)])), None
    claims = check_claims(answer, log, files, pack)
    return ModelReading(model, server, answer.cause, claims, answer.change, next_step=answer.next_step), answer
