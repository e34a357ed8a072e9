import ast

from gonogo.evidence.log.context import (
    REPLICA_ERROR_PATTERN,
    has_several_processes,
    is_outside_training,
    is_single_process_multi_gpu,
)
from gonogo.evidence.log.failure_log import FailureLog, LoggedError
from gonogo.evidence.log.truncated_traceback import find_truncated_error
from gonogo.evidence.rehearsal.device_mismatch import device_mismatch
from gonogo.evidence.rehearsal.failures import failed_ranks, frame_spans, innermost_frame, library_frame
from gonogo.evidence.script.identifiers import uses_name
from gonogo.hazards.facts.device_map import AUTO_DEVICE_MAPS, abbreviate_devices, device_map_accelerators
from gonogo.hazards.facts.mismatch_in_log import LoggedDeviceMismatch, device_mismatches_in_training
from gonogo.hazards.facts.training_script import has_several_processes_per_node, trained_pretrained_calls
from gonogo.hazards.rule import Certainty, Findings, Hazard, RehearsalRecord, Run, Script, translated


class DeviceMapAutoTrainerMismatch(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A custom loss of labels and the logits of a model split over GPUs, in one process."""
        if b"compute_loss" not in script.source.data or run.is_distributed or has_several_processes_per_node(run):
            return
        spread = [
            load
            for _, load in trained_pretrained_calls(script)
            if load.keyword("device_map").string in AUTO_DEVICE_MAPS
        ]
        if not spread:
            return
        gpus = (run.launch.visible_devices.string or "").split(",") if run.launch is not None else [""]
        if gpus != [""] and len(gpus) < 2:
            return
        for owner in script.subclasses("transformers.Trainer"):
            method = owner.methods.get("compute_loss")
            if method is None or any(map(_is_to_call, ast.walk(method))) or not uses_name(method, "labels"):
                continue
            for call in (node for node in ast.walk(method) if isinstance(node, ast.Call)):
                if not _is_loss_function_call(script, call) or not any(uses_name(each, "labels") for each in call.args):
                    continue
                yield self.finding(
                    self.texts["cause_in_script"].format(owner=owner.name, given=spread[0].keyword("device_map").value),
                    certainty=Certainty.LIKELY if len(gpus) > 1 else Certainty.POSSIBLE,
                    cure=(translated("Move the labels: labels.to(logits.device)"), *self.cures),
                    spans=(script.place(call).span(), spread[0].place.span(translated("spread over the GPUs here"))),
                    confirm=translated("The process sees several GPUs"),
                )
                break

    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """A mismatch between accelerators, in the only process, with the model spread over several of them."""
        for failed in failed_ranks(record):
            mismatch = device_mismatch(failed.failure)
            devices = device_map_accelerators(failed.first.device_map)
            if record.world_size > 1 or len(devices) < 2 or mismatch is None or not mismatch.is_between_accelerators:
                continue
            yield self.finding(
                self.texts["cause_in_rehearsal"].format(
                    devices=abbreviate_devices(devices),
                    module=failed.failure.module or "?",
                    here=mismatch.devices[0],
                    there=mismatch.devices[1],
                ),
                spans=frame_spans(
                    (innermost_frame(failed.first.device_map_frames, "user"), translated("split here")),
                    (failed.failure.innermost("user"), translated("fails here")),
                    (library_frame(failed.failure), None),
                ),
                ranks=failed.ranks,
                module=failed.failure.module,
            )

    def in_log(self, log: FailureLog) -> Findings:
        """A mismatch between accelerators in training, if nothing shows several processes or DataParallel."""
        if not log.errors and not is_outside_training(log) and (cut := _find_cut_in_dispatched_model(log)):
            yield self.log_finding(
                cut,
                self.texts["cut_log_cause"],
                certainty=Certainty.POSSIBLE,
                confirm=translated("The traceback's last line, which is missing here, names two devices"),
            )
        for mismatch in device_mismatches_in_training(log):
            certainty = _judge_certainty(mismatch, log)
            if certainty is None:
                continue
            yield self.log_finding(
                mismatch.evidence,
                self.texts["mismatch_cause"].format(mismatch=mismatch.sentence),
                cure=(*self.cures, self.texts["cure"]),
                certainty=certainty,
                module=mismatch.module,
                confirm=self.texts["confirm"],
            )


def _find_cut_in_dispatched_model(log: FailureLog) -> LoggedError | None:
    """A truncated traceback of single-process training that ends within a few frames of accelerate's hook."""
    if has_several_processes(log) or log.passes("torch/nn/parallel/distributed.py", "deepspeed/", "fsdp"):
        return None
    trains = log.passes("transformers/trainer.py", "training_step", "compute_loss")
    return find_truncated_error(log, ("accelerate/hooks.py", "new_forward"), max_frames=6) if trains else None


def _judge_certainty(mismatch: LoggedDeviceMismatch, log: FailureLog) -> Certainty | None:
    """Mostly None with a CPU; certain if hooks move the model's inputs or the script asks for the split."""
    if not mismatch.is_between_accelerators:
        indexed = mismatch.indexing and mismatch.devices[:1] != ("cpu",)
        return Certainty.POSSIBLE if indexed else None
    if (
        mismatch.passes("data_parallel.py", "parallel_apply.py", "replicate.py")
        or log.find(REPLICA_ERROR_PATTERN) is not None
    ):
        return None
    if has_several_processes(log) or mismatch.passes("torch/nn/parallel/distributed.py", "deepspeed/runtime/engine.py"):
        return Certainty.POSSIBLE
    requested = log.setup.mentions(r"""device_map["']?\s*[=:]\s*["']?(?:auto|balanced|sequential)""")
    if requested or mismatch.passes("accelerate/hooks.py"):
        # Lines with a rank come from a process group, in which each rank may have all GPUs.
        of_a_rank = isinstance(mismatch.evidence, LoggedError) and bool(mismatch.evidence.ranks)
        return Certainty.LIKELY if of_a_rank else Certainty.CERTAIN
    # One plain process with several GPUs, and a message without an operator: more likely DataParallel.
    copies = mismatch.has_only_devices and is_single_process_multi_gpu(log) and log.setup.launcher != "swift"
    return Certainty.POSSIBLE if copies else Certainty.LIKELY


def _is_to_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "to"


def _is_loss_function_call(script: Script, call: ast.Call) -> bool:
    name = script.qualified(call.func) or ""
    kind = script.kind_of(call.func) or script.kind_of(call) or ""
    return name.endswith(("cross_entropy", "nll_loss", "mse_loss")) or any(
        word in one for one in (name, kind) for word in ("CrossEntropyLoss", "MSELoss", "NLLLoss")
    )
