from gonogo.evidence.log.context import is_under_zero3
from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.evidence.log.truncated_traceback import find_truncated_error
from gonogo.evidence.rehearsal.device_mismatch import device_mismatch
from gonogo.evidence.rehearsal.failures import failed_ranks, frame_spans, nested_value, path_ends_with
from gonogo.hazards.facts.mismatch_in_log import LoggedDeviceMismatch, device_mismatches_in_training
from gonogo.hazards.rule import (
    Certainty,
    DeepSpeedConfig,
    Finding,
    Findings,
    Hazard,
    Pattern,
    RehearsalRecord,
    Run,
    translated,
)


class Zero3OffloadClipGradDeviceRegression(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Stage 3, an offloaded optimizer and clipping, under one of the faulty versions."""
        if config.zero_stage != 3 or run.environment.within("deepspeed", ">=0.14.1,<0.14.3") is not True:
            return
        offload, clipping = config.offload_target("optimizer"), config.get("gradient_clipping")
        limit = clipping.number
        if offload.get() not in ("cpu", "nvme") or clipping.absent or limit == 0:
            return
        version = run.environment.field("deepspeed")
        package = run.environment.packages["deepspeed"]
        edit = run.environment.replacing_version("deepspeed", "==0.14.4")
        sure = limit is not None and (run.launch is not None or bool(run.scripts))
        clip_place = clipping.place or config.raw("gradient_clipping").place
        yield self.finding(
            self.texts["cause_in_config"].format(
                version=version.get(package.specifier.strip()),
                device=offload.value,
                limit=translated("the run uses this version") if limit is None else limit,
            ),
            certainty=Certainty.CERTAIN if sure else Certainty.LIKELY,
            spans=(
                version.span(translated("0.14.1 and 0.14.2 are faulty"))
                or (package.place.span() if package.place else None),
                offload.span(translated("the optimizer is offloaded")),
                clip_place.span(translated("gradients are clipped")) if clip_place else None,
            ),
            fixes=self.fix(translated("Pin deepspeed 0.14.4"), edit, safe=False) if edit is not None else None,
            confirm=translated("gradient_clipping is above 0"),
        )

    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """A device mismatch between accelerator and CPU inside ``unscale_and_clip_grads``."""
        for failed in failed_ranks(record):
            failure = failed.failure
            clipping = next((f for f in reversed(failure.frames) if f.function == "unscale_and_clip_grads"), None)
            mismatch = device_mismatch(failure)
            if clipping is None or not path_ends_with(clipping, "deepspeed/runtime/zero/stage3.py"):
                continue
            if mismatch is None or not mismatch.involves_cpu:
                continue
            version = failed.first.versions.get("deepspeed", "?")
            limit = nested_value(failed.first.deepspeed_config, "gradient_clipping")
            yield self.finding(
                self.texts["cause_in_rehearsal"].format(
                    version=version,
                    device=next(device for device in mismatch.devices if device != "cpu"),
                    limit="?" if limit is None else limit,
                ),
                spans=frame_spans(
                    (clipping, translated("gradient on cpu, factor on the accelerator")),
                    (failure.innermost("user"), translated("the failing code is reached from here")),
                ),
                ranks=failed.ranks,
            )

    def in_log(self, log: FailureLog) -> Findings:
        """A mismatch with the CPU in ``unscale_and_clip_grads``; elsewhere only if version or config suggest it."""
        release = log.setup.release_numbers("deepspeed")
        for mismatch in device_mismatches_in_training(log):
            certainty = _judge_certainty(mismatch, log, release)
            if certainty is not None:
                yield self._log_finding(mismatch.evidence, log, certainty)
        if not log.errors and (cut := find_truncated_error(log, ("stage3.py", "unscale_and_clip_grads"))):
            faulty = release is None or release[:3] in _FAULTY_VERSIONS
            yield self._log_finding(cut, log, Certainty.LIKELY if faulty else Certainty.POSSIBLE)
        elif not log.errors and (cut := _find_cut_step_traceback(log, release)):
            yield self._log_finding(cut, log, Certainty.POSSIBLE)  # the most common error at the end of a step

    def _log_finding(self, evidence: LoggedError | LineMatch, log: FailureLog, certainty: Certainty) -> Finding:
        version = log.setup.version_texts.get("deepspeed")
        return self.log_finding(
            evidence,
            self.texts["log_cause"].format(version=f" {version}" if version else ""),
            certainty=certainty,
            confirm=(translated("pip show deepspeed prints 0.14.1 or 0.14.2"), self.texts["confirm"]),
        )


_FAULTY_VERSIONS = ((0, 14), (0, 14, 1), (0, 14, 2))

_STEP_FRAMES = ("zero/stage", "engine.step", "engine_wrapped.backward", "accelerator.backward", "model_engine.step")
_CLIPS_PATTERN = Pattern(r"in unscale_and_clip_grads|grad\.mul_\(1\. / combined_scale\)|self\.unscale_and_clip_grads\(")


def _judge_certainty(
    mismatch: LoggedDeviceMismatch, log: FailureLog, release: tuple[int, ...] | None
) -> Certainty | None:
    if not mismatch.involves_cpu or mismatch.is_between_accelerators:
        return None
    faulty = release is not None and release[:3] in _FAULTY_VERSIONS
    clips = any(
        "unscale_and_clip_grads" in frame.function and ("deepspeed" in frame.path or "stage" in frame.path)
        for frame in mismatch.frames
    )
    # Ranks that write to the same log without a prefix interleave their frames.
    if clips or mismatch.passes("combined_scale") or (mismatch.passes("zero/stage3.py") and log.find(_CLIPS_PATTERN)):
        return Certainty.CERTAIN if faulty or release is None else Certainty.LIKELY
    if mismatch.operator is not None or (mismatch.frames and not mismatch.passes(*_STEP_FRAMES)):
        return None
    if log.find(_CLIPS_PATTERN) is not None:
        return Certainty.LIKELY
    offloads, zero3 = log.setup.offloads("optimizer"), is_under_zero3(log)
    if zero3 is False or offloads is False:
        return None
    if faulty and (zero3 or offloads):
        return Certainty.LIKELY
    if release is not None and not faulty:
        return None
    # TensorIterator's message, which names no operator, is the one that the multiplication raises.
    if zero3 and (offloads or mismatch.frames):
        return Certainty.LIKELY
    return Certainty.POSSIBLE if zero3 or offloads or faulty else None


def _find_cut_step_traceback(log: FailureLog, release: tuple[int, ...] | None) -> LoggedError | None:
    """A traceback that ends in the engine's step; None if version or stage rule this hazard out."""
    if is_under_zero3(log) is False or (release is not None and release[:3] not in _FAULTY_VERSIONS):
        return None
    return find_truncated_error(log, ("deepspeed/runtime/engine.py", "_take_model_step"), max_frames=1)
