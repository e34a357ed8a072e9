import ast

from gonogo.evidence.log.context import is_outside_training
from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.evidence.number import parse_whole_number
from gonogo.hazards.facts.device_map import local_rank_device_map_edits
from gonogo.hazards.facts.training_script import has_several_processes_per_node, is_trainer, trained_pretrained_calls
from gonogo.hazards.rule import Certainty, Finding, Findings, Hazard, Pattern, Run, Script, translated

_ON_CPU_PATTERN = Pattern(r"Expected a cuda device, but got: cpu")

_QUANTIZATION_ARGUMENTS = ("quantization_config", "load_in_4bit", "load_in_8bit")


class QuantizedModelWrongDeviceMap(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A quantized model that is trained, but that every process of a node loads onto the same GPU."""
        if b"device_map" not in script.source.data or not has_several_processes_per_node(run):
            return
        for trainer, load in trained_pretrained_calls(script):
            node = load.keyword_node("device_map")
            if (
                node is None
                or not any(load.passed_keyword(name) is not None for name in _QUANTIZATION_ARGUMENTS)
                or not is_trainer(trainer)
            ):
                continue
            fixed = _single_gpu_index(script, node)
            if fixed is None:
                continue
            edits = tuple(edit for edit in local_rank_device_map_edits(script, load) if edit is not None)
            place = load.keyword_place("device_map")
            assert run.launch is not None
            yield self.finding(
                self.texts["cause"].format(given=script.place(node).text, gpu=fixed),
                certainty=Certainty.CERTAIN if run.uses_deepspeed is False else Certainty.LIKELY,
                spans=(
                    place.span() if place is not None else load.place.span(),
                    run.launch.place.span(translated("the launch starts several processes per node")),
                ),
                fixes=self.fix(translated("Give each process its own GPU"), *edits) if edits else None,
            )

    def in_log(self, log: FailureLog) -> Findings:
        """accelerate's error; less certain: a quantized layer that runs on the CPU during training."""
        evidence: LoggedError | LineMatch | None = (
            next(log.errors_of(says=self.patterns["wrong_device"]), None)
            or log.find(self.patterns["wrong_device"])
            or log.find(self.patterns["truncated_message"])
        )
        if evidence is not None:
            text = evidence.message if isinstance(evidence, LoggedError) else evidence.text
            yield self._build_finding(
                evidence, Certainty.CERTAIN, offloaded="offload" in text, on_several_gpus="multiple" in text
            )
            return
        if is_outside_training(log):
            return
        for error in log.errors_of(says=_ON_CPU_PATTERN):
            runs = any(frame.function == "forward" for frame in error.frames) and error.passes("bitsandbytes")
            if runs and error.passes("training_step", "compute_loss", "prediction_step", "backward"):
                yield self._build_finding(error, Certainty.LIKELY, offloaded=True, on_several_gpus=False)

    def _build_finding(
        self, evidence: LoggedError | LineMatch, certainty: Certainty, *, offloaded: bool, on_several_gpus: bool
    ) -> Finding:
        where = translated("on a GPU other than the one the process trains on")
        if offloaded:
            where = translated("partly on the CPU or the disk")
        elif on_several_gpus:
            where = translated("on several GPUs")
        cures = [
            translated('Load it whole onto the process\'s GPU: device_map={"": int(os.environ.get("LOCAL_RANK", 0))}'),
            self.texts["cure"],
        ]
        if offloaded:
            cures.insert(0, self.texts["fit_on_gpu_cure"])
        return self.log_finding(
            evidence,
            translated("The quantized model was loaded {where}; quantized weights can't be moved afterwards.").format(
                where=where
            ),
            cure=tuple(cures),
            certainty=certainty,
            confirm=translated("Print model.hf_device_map and LOCAL_RANK"),
        )


def _single_gpu_index(script: Script, node: ast.expr) -> int | None:
    """The GPU onto which a ``device_map`` puts the whole model in every process; None if not exactly one."""
    if isinstance(node, ast.Dict):
        if len(node.values) != 1:
            return None
        node = node.values[0]
    value = script.field(node).value
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    text = str(value).removeprefix("cuda:") if isinstance(value, str) and value.startswith("cuda:") else ""
    return parse_whole_number(text)
