import re

from gonogo.evidence.log.context import is_under_zero3
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.rehearsal.device_mismatch import device_mismatch, operands_on
from gonogo.evidence.rehearsal.failures import describe_operands, failed_ranks, failure_places, last_frame_outside_torch
from gonogo.evidence.rehearsal.record import Failure, Frame
from gonogo.finding.words import PHASES
from gonogo.hazards.facts.mismatch_in_log import (
    MULTIMODAL_ENCODER_PATTERN,
    SPEECH_OUTPUT_PATTERN,
    LoggedDeviceMismatch,
    MisplacedTensor,
    device_mismatches_in_training,
)
from gonogo.hazards.rule import (
    Certainty,
    Findings,
    Fix,
    Hazard,
    Launch,
    Pattern,
    RehearsalRecord,
    Run,
    Span,
    Text,
    translated,
)

_OMNI_PATTERN = Pattern(r"(?i)omni")
_OMNI_TEXT = r"(?i)omni"


class DeviceMismatchMultimodalSubmodule(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """A mismatch with the CPU inside a vision, audio or speech part, in a library's code, under ZeRO-3."""
        for failed in failed_ranks(record):
            failure = failed.failure
            mismatch = device_mismatch(failure)
            caller = last_frame_outside_torch(failure)
            if mismatch is None or not mismatch.involves_cpu or failed.zero_stage != 3:
                continue
            if caller is None or not _is_library_frame(caller):
                continue  # the user's own code created the tensor: the general device mismatch explains the move
            submodule = _submodule_name(failure)
            if submodule is None:
                continue
            operands = describe_operands(o for device in mismatch.devices for o in operands_on(failure, device))
            yield self.finding(
                translated("While {doing}, {submodule} ({function}) combines tensors on {devices}{operands}.").format(
                    doing=translated("the model is built inside deepspeed.zero.Init")
                    if failed.is_under_zero_init
                    else translated("the model runs, in {phase}").format(phase=PHASES[failure.phase]),
                    submodule=_shorten_class_chain(submodule),
                    function=caller.function,
                    devices=Text(" and ".join(mismatch.devices), " 与 ".join(mismatch.devices)),
                    operands=Text(f": {operands.en}", f"：{operands.zh}") if operands.en else "",
                ),
                cure=self._choose_cures(submodule),
                spans=failure_places(failure),
                ranks=failed.ranks,
                module=submodule,
                parameter=next((operand.parameter for operand in failure.operands if operand.parameter), None),
            )

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """An Omni model that is built with its speech output under ZeRO-3."""
        if run.zero_stage != 3 or run.model is None or run.model.supports_modality("speech") is not True:
            return
        if not launch.variable("ENABLE_AUDIO_OUTPUT").absent or run.model.first_value("enable_audio_output") is False:
            return
        certainty, where = _find_full_omni_model(run)
        if certainty is None:
            return
        fixes: tuple[Fix, ...] = ()
        if launch.source.writable and (run.framework == "ms-swift" or _reads_audio_variable(run)):
            title = translated("do not build the speech output: ENABLE_AUDIO_OUTPUT=0")
            fixes = (self.fix(title, launch.setting_variable("ENABLE_AUDIO_OUTPUT", "0"), safe=False),)
        yield self.finding(
            self.texts["cause_in_launch"].format(model=run.model.name),
            certainty=certainty,
            cure=self._choose_cures("talker"),
            spans=(launch.place.span(), where, run.config_field.span()),
            fixes=fixes,
        )

    def in_log(self, log: FailureLog) -> Findings:
        """A mismatch with the CPU inside a multimodal part, or of an Omni model under ZeRO-3 if no frame says more."""
        omni = log.find(_OMNI_PATTERN) is not None or log.setup.mentions(_OMNI_TEXT)
        zero3 = is_under_zero3(log)
        for mismatch in device_mismatches_in_training(log):
            certainty = _judge_certainty(mismatch, omni, zero3)
            if certainty is None:
                continue
            part = mismatch.multimodal_part or "talker"
            yield self.log_finding(
                mismatch.evidence,
                self.texts["cause_in_log"].format(
                    found=mismatch.sentence,
                    where=Text(f"The line belongs to {part}. ", f"该行属于 {part}。")
                    if mismatch.multimodal_part
                    else translated("In an Omni model this is usually the talker or token2wav. "),
                ),
                cure=self._choose_cures(part),
                certainty=certainty,
                module=mismatch.multimodal_part,
                confirm=translated("The run works with ZeRO-2, or with ENABLE_AUDIO_OUTPUT=0"),
            )

    def _choose_cures(self, submodule: str) -> tuple[Text, ...]:
        zero2 = translated("Or use ZeRO-2, which builds the model without zero.Init")
        if SPEECH_OUTPUT_PATTERN.search(submodule):
            return (
                self.texts["untrained_part_cure"],
                translated("Or build only the part that is trained, e.g. Qwen2_5OmniThinkerForConditionalGeneration"),
                zero2,
            )
        return (self.texts["upgrade_part_cure"].format(part=_shorten_class_chain(submodule)), zero2)


def _judge_certainty(mismatch: LoggedDeviceMismatch, is_omni: bool, uses_zero3: bool | None) -> Certainty | None:
    if not mismatch.involves_cpu or mismatch.is_between_accelerators:
        return None
    if mismatch.likely_tensor is MisplacedTensor.SUBMODULE:
        if uses_zero3 is False:
            return Certainty.POSSIBLE
        if mismatch.is_in_speech_output:
            return Certainty.CERTAIN if uses_zero3 else Certainty.LIKELY
        return Certainty.LIKELY if uses_zero3 or is_omni else Certainty.POSSIBLE
    if mismatch.is_in_multimodal_encoder and uses_zero3:
        return Certainty.POSSIBLE
    if is_omni and not mismatch.frames:
        return Certainty.LIKELY if uses_zero3 else Certainty.POSSIBLE
    return None


def _is_library_frame(frame: Frame) -> bool:
    """Whether a frame is a library's: remote code (``transformers_modules``) counts, though in the user's cache."""
    return frame.owner == "library" or "transformers_modules" in frame.path


def _submodule_name(failure: Failure) -> str | None:
    """The submodule's name: the module that ran, else from the innermost library line that builds such a part."""
    for name in (failure.module, failure.module_class):
        if name and _find_multimodal_part(name):
            return failure.module or name
    if failure.module is not None:
        return None
    for frame in reversed(failure.frames):
        if _is_library_frame(frame) and (found := _find_multimodal_part(f"{frame.function} {frame.text}")):
            assigned = frame.text.partition("=")[0].strip()
            return assigned.removeprefix("self.") if assigned.startswith("self.") else found.group(0)
    return None


def _shorten_class_chain(submodule: str) -> str:
    """Shorten a chain of classes to the first multimodal part and the innermost class: ``Talker > … > Filter``."""
    chain = submodule.split(" > ")
    start = next((index for index, name in enumerate(chain) if _find_multimodal_part(name)), 0)
    return " > ".join(chain[start:] if len(chain) - start < 3 else (chain[start], "…", chain[-1]))


def _find_multimodal_part(text: str) -> re.Match[str] | None:
    return SPEECH_OUTPUT_PATTERN.search(text) or MULTIMODAL_ENCODER_PATTERN.search(text)


_OMNI_CLASSES = ("transformers.Qwen2_5OmniForConditionalGeneration.from_pretrained", "transformers.Qwen2_5OmniModel.*")


def _find_full_omni_model(run: Run) -> tuple[Certainty | None, Span | None]:
    """The certainty that the run builds the whole Omni model, and where; None if it does not or is unknown."""
    if run.framework == "ms-swift":
        return Certainty.LIKELY, None
    for script in run.scripts:
        if b"Omni" not in script.source.data or b"enable_audio_output=False" in script.source.data:
            continue
        call = next(script.calls(*_OMNI_CLASSES), None)
        if call is not None:
            return Certainty.CERTAIN, call.place.span(translated("the whole model is built here"))
    return None, None


def _reads_audio_variable(run: Run) -> bool:
    return any(b"ENABLE_AUDIO_OUTPUT" in script.source.data for script in run.scripts)
