"""A failure read by a model: asked, understood, and every claim held against the log."""

from __future__ import annotations

from collections.abc import Callable

from gonogo.check.static_findings import StaticFindings
from gonogo.diagnose.pack.pack import ReaderPack
from gonogo.diagnose.reader.claims import checked
from gonogo.diagnose.reader.client import NoAnswer
from gonogo.diagnose.reader.model_answer import BrokenAnswer, ModelAnswer, parsed
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.finding import Text
from gonogo.finding.second_opinion.model_reading import ModelReading

_BROKEN = Text("its answer can't be understood: {why}", "无法理解它的回答：{why}")
_NO_JSON = {
    "no JSON object": Text("it has no JSON object", "其中没有 JSON 对象"),
    "no cause": Text("it names no cause", "没有给出原因"),
}


def read_by(
    model: str, server: str, ask: Callable[[str], str], pack: ReaderPack, log: FailureLog, files: StaticFindings
) -> tuple[ModelReading, ModelAnswer | None]:
    """What a model makes of a pack, with its answer; the answer is None where it gave none that can be understood."""
    try:
        answer = parsed(ask(pack.text))
    except NoAnswer as error:
        return ModelReading(model, server, failed=error.why), None
    except BrokenAnswer as error:
        return ModelReading(model, server, failed=_BROKEN.format(why=_NO_JSON[str(error)])), None
    claims = checked(answer, log, files, pack)
    return ModelReading(model, server, answer.cause, claims, answer.change, next_step=answer.next_step), answer
