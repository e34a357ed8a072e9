import ast

from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.log.stall import STALL_WORDS, find_stall
from gonogo.evidence.rehearsal.rank_divergence import rank_divergence
from gonogo.finding.divergence import Side
from gonogo.hazards.facts.zero_usage import (
    dotted_name_or_empty,
    is_engine,
    is_in_gathered_parameters,
    is_trained,
    is_under_zero_condition,
    stage_span,
)
from gonogo.hazards.rule import Call, Certainty, Finding, Findings, Hazard, RehearsalRecord, Run, Script, translated
from gonogo.hazards.zero3._loading import zero3_configuring_calls

_CURE = (
    translated("Call model.generate(..., synced_gpus=True), the same number of times on every rank"),
    translated(
        "Or gather the weights once for the generation (deepspeed.zero.GatheredParameters; TRL: "
        "ds3_gather_for_generation=True), or use ZeRO-2"
    ),
)


_GENERATION_FRAMES = (
    "transformers/generation",
    "generation_utils.py",
    ".generate(",
    "prediction_step",
    "trainer_seq2seq",
)
_GENERATION_METHODS = frozenset({"generate", "_sample", "_beam_search", "_greedy_search"})

_EQUAL_GENERATE_CALLS_CURES = (
    translated(
        "Call generate the same number of times on every rank: agree on the maximum (all_reduce of the number of "
        "prompts with MAX), and let a rank with fewer prompts run its last one again"
    ),
    _CURE[1],
)


class Zero3GenerateWithoutSyncedGpus(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """Ranks that diverge while one of them generates."""
        divergence = rank_divergence(record)
        if divergence is None:
            return
        generating = [side for side in divergence.sides if _GENERATION_METHODS & set(side.functions)]
        if not generating or divergence.zero_stage != 3:
            return
        side = divergence.most_informative_side(*generating)
        often = len(generating) < len(divergence.sides) and _is_first_generate_call(side)
        cure, because = (
            (_EQUAL_GENERATE_CALLS_CURES, self.texts["unequal_generate_calls"])
            if often
            else (_CURE, self.texts["divergence_reason"])
        )
        yield self.divergence_finding(divergence, side, cure=cure, reason=because)

    def in_script(self, script: Script, run: Run) -> Findings:
        """``generate`` with ``synced_gpus=False``, or without it if transformers doesn't know about ZeRO-3."""
        if run.zero_stage != 3 or b".generate(" not in script.source.data or run.world_size == 1:
            return
        seen = any(one.cached_result(zero3_configuring_calls) for one in run.scripts)
        old = run.environment.within("transformers", "<4.28")
        for call in script.calls("*.generate"):
            synced = call.keyword("synced_gpus")
            if (
                is_in_gathered_parameters(script, call.node)
                or is_under_zero_condition(script, call.node)
                or synced.unknown
                or synced.truth
            ):
                continue
            if synced.known and synced.truth is False:
                yield self._file_finding(call, run, is_disabled=True)
            elif synced.absent and (not seen or old) and _is_engine_call(script, call):
                yield self._file_finding(call, run, is_disabled=False)

    def _file_finding(self, call: Call, run: Run, *, is_disabled: bool) -> Finding:
        edit = call.script.setting_keyword(call, "synced_gpus", "True")
        place = call.keyword_place("synced_gpus")
        return self.finding(
            self.texts["file_cause"].format(
                why=translated("generate runs under ZeRO-3 with synced_gpus=False")
                if is_disabled
                else self.texts["engine_unknown"]
            ),
            certainty=Certainty.LIKELY,
            cure=_CURE,
            spans=((place or call.place).span(), stage_span(run)),
            fixes=self.fix(translated("Pass synced_gpus=True"), edit, safe=is_disabled) if edit else None,
            confirm=translated("The ranks' texts differ in length"),
        )

    log_words = STALL_WORDS

    def in_log(self, log: FailureLog) -> Findings:
        """A stall under ZeRO-3 inside generate."""
        stall = find_stall(log)
        if stall is None or not stall.gathers_parameters:
            return
        if not log.passes(*_GENERATION_FRAMES) or log.setup.mentions(r"synced_gpus\s*=\s*True"):
            return
        yield self.log_finding(
            stall.evidence,
            cure=_CURE,
            certainty=stall.cap_certainty(Certainty.LIKELY),
            confirm=translated("py-spy dump shows some ranks inside generate and others past it"),
        )


def _is_first_generate_call(side: Side) -> bool:
    """Whether a side's call is the first of its ``generate``.

    Inside ``generate`` there are only gathers, unless ``synced_gpus`` is on: then the ranks also exchange, up to the
    end, whether any of them has to continue.
    """
    return bool(side.before) and not side.before[-1].operator.startswith("allgather")


def _is_engine_call(script: Script, call: Call) -> bool:
    receiver = call.receiver
    if receiver is None or next(script.calls("deepspeed.initialize"), None) is None:
        return False
    inner = receiver.value if isinstance(receiver, ast.Attribute) and receiver.attr == "module" else receiver
    return is_engine(script, inner) or is_trained(script, dotted_name_or_empty(inner))
