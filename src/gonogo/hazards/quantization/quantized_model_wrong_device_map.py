import ast

from gonogo.evidence.log.context import outside_training
from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.hazards.facts.device_map import own_gpu_edits
from gonogo.hazards.facts.training_script import is_trainer, several_a_node, trained_loads
from gonogo.hazards.rule import Certainty, Finding, Findings, Hazard, Pattern, Run, Script, Text

_SAID = Pattern(
    r"can't train a model that has been loaded in (?:8-bit|4-bit|8-bit or 4-bit|quantized) ?(?:precision)? "
    r"(?:on a different device|on multiple devices|with CPU or disk offload)"
)
# Wrapped by a terminal, the message goes on in the next line.
_CUT = Pattern(r"can't train a model that has been loaded in (?:8-bit|4-bit|8-bit or 4-bit)(?: precision)?\s*$")
_ON_CPU = Pattern(r"Expected a cuda device, but got: cpu")

_QUANTIZED = ("quantization_config", "load_in_4bit", "load_in_8bit")


class QuantizedModelWrongDeviceMap(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A quantized model that every process of a node loads onto the same GPU, and then trains."""
        if b"device_map" not in script.source.data or not several_a_node(run):
            return
        for trainer, load in trained_loads(script):
            node = load.keyword_node("device_map")
            if node is None or not any(load.passed(name) is not None for name in _QUANTIZED) or not is_trainer(trainer):
                continue
            fixed = _one_gpu(script, node)
            if fixed is None:
                continue
            edits = tuple(edit for edit in own_gpu_edits(script, load) if edit is not None)
            place = load.keyword_place("device_map")
            assert run.launch is not None
            yield self.finding(
                Text(
                    "device_map={given} loads the quantized model onto GPU {gpu} in every process; a quantized model "
                    "can't be moved, and only the process with local rank {gpu} trains there.",
                    "device_map={given} 让每个进程都把量化模型加载到 GPU {gpu}；量化模型不能移动，而只有 local rank 为 "
                    "{gpu} 的进程在那里训练。",
                ).format(given=script.place(node).text, gpu=fixed),
                certainty=Certainty.CERTAIN if run.deepspeed_on is False else Certainty.LIKELY,
                cure=(
                    Text(
                        'Give each process its own GPU: device_map={"": int(os.environ["LOCAL_RANK"])}',
                        '让每个进程使用自己的 GPU：device_map={"": int(os.environ["LOCAL_RANK"])}',
                    ),
                    Text(
                        'Or device_map={"": PartialState().process_index} on one node (from accelerate)',
                        '单机时也可用 device_map={"": PartialState().process_index}（来自 accelerate）',
                    ),
                ),
                spans=(
                    place.span() if place is not None else load.place.span(),
                    run.launch.place.span(Text("starts several processes per node", "每个节点启动多个进程")),
                ),
                fixes=self.fix(Text("Give each process its own GPU", "让每个进程使用自己的 GPU"), *edits)
                if edits
                else None,
            )

    def in_log(self, log: FailureLog) -> Findings:
        """accelerate's refusal; less sure, a quantized layer that runs on the CPU in training."""
        evidence: LoggedError | LineMatch | None = (
            next(log.errors_of(says=_SAID), None) or log.find(_SAID) or log.find(_CUT)
        )
        if evidence is not None:
            text = evidence.message if isinstance(evidence, LoggedError) else evidence.text
            yield self._finding(evidence, Certainty.CERTAIN, offloaded="offload" in text, several="multiple" in text)
            return
        if outside_training(log):
            return
        for error in log.errors_of(says=_ON_CPU):
            runs = any(frame.function == "forward" for frame in error.frames) and error.passes("bitsandbytes")
            if runs and error.passes("training_step", "compute_loss", "prediction_step", "backward"):
                yield self._finding(error, Certainty.LIKELY, offloaded=True, several=False)

    def _finding(
        self, evidence: LoggedError | LineMatch, certainty: Certainty, *, offloaded: bool, several: bool
    ) -> Finding:
        where = Text("on another GPU than the one that the process trains on", "到了与训练进程不同的 GPU 上")
        if offloaded:
            where = Text("partly on the CPU or the disk", "到了 CPU 或磁盘上（部分）")
        elif several:
            where = Text("on several GPUs", "到了多张 GPU 上")
        cures = [
            Text(
                'Load it whole onto the process\'s GPU: device_map={"": int(os.environ.get("LOCAL_RANK", 0))}',
                '把它整体加载到该进程的 GPU：device_map={"": int(os.environ.get("LOCAL_RANK", 0))}',
            ),
            Text(
                "To split one model over the GPUs: a single process (python train.py) and accelerate >= 0.20",
                "若要把一个模型切分到多卡：只用单进程（python train.py），且 accelerate >= 0.20",
            ),
        ]
        if offloaded:
            cures.insert(
                0,
                Text(
                    "Make it fit the GPU: 4 bits, a smaller model, or other processes off the GPU; nothing may be "
                    "offloaded",
                    "让它放得进 GPU：4-bit、更小的模型，或清掉 GPU 上的其他进程；不能有任何卸载",
                ),
            )
        return self.log_finding(
            evidence,
            Text(
                "The quantized model was loaded {where}; quantized weights can't be moved afterwards.",
                "量化模型被加载{where}；量化权重之后无法再移动。",
            ).format(where=where),
            cure=tuple(cures),
            certainty=certainty,
            confirm=Text("print(model.hf_device_map), and LOCAL_RANK", "print(model.hf_device_map) 以及 LOCAL_RANK"),
        )


def _one_gpu(script: Script, node: ast.expr) -> int | None:
    """The GPU that a map names for all of the model, in every process alike; None where it names none, or several."""
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
    return int(text) if text.isdigit() else None
