from gonogo.hazards.facts.zero_files import stage_span, tests_the_stage
from gonogo.hazards.rule import Certainty, Findings, Hazard, Pattern, Refusal, Run, Script, Severity, Text
from gonogo.hazards.zero3._loading import knows_zero3


class Zero3CreateReferenceModel(Hazard):
    """`trl.create_reference_model` is called under ZeRO-3.
    ## What happens
    "ValueError: DeepSpeed ZeRO-3 is enabled and is not compatible with `create_reference_model()`. Please
    instantiate your reference model directly with `AutoModelForCausalLM.from_pretrained()`."
    ## Why
    The function makes the reference by `deepcopy`. Under ZeRO-3 the model's parameters are partitioned, and a copy
    would hold empty tensors, so TRL refuses.
    ## Example
    ```python
    ref_model = create_reference_model(model)                 # wrong
    ref_model = AutoModelForCausalLM.from_pretrained(name)    # right
    ```
    ## Cure
    Load the reference model by `from_pretrained` and pass it to the trainer as `ref_model`; DPO with PEFT needs
    none at all.
    ## When it is safe
    ZeRO-2 and lower.
    ## Sources
    - https://github.com/huggingface/trl/issues/827: PPO with a copied reference model under ZeRO-3
    - https://github.com/huggingface/trl/pull/840: TRL raises the error
    - https://github.com/modelscope/ms-swift/issues/1574: met through a framework
    """

    name = "zero3-create-reference-model"
    raises = True
    title = Text("trl's create_reference_model refuses ZeRO-3", "trl 的 create_reference_model 不支持 ZeRO-3")
    refusal = Refusal(Pattern(r"not compatible with `create_reference_model\(\)`"))

    def in_script(self, script: Script, run: Run) -> Findings:
        """Calls of it, once transformers knows of ZeRO-3."""
        if run.zero_stage != 3 or b"create_reference_model" not in script.source.data:
            return
        for call in script.calls("trl.create_reference_model"):
            known = knows_zero3(script, call.node)
            if known is False or tests_the_stage(script, call.node):
                continue
            yield self.finding(
                Text(
                    "create_reference_model copies the model, which ZeRO-3 has partitioned: TRL refuses it with a "
                    "ValueError.",
                    "create_reference_model 要复制已被 ZeRO-3 切分的模型：TRL 会以 ValueError 拒绝。",
                ),
                certainty=Certainty.CERTAIN if known else Certainty.LIKELY,
                severity=Severity.ERROR,
                cure=Text(
                    "Load the reference model by from_pretrained instead, and pass it as ref_model",
                    "改用 from_pretrained 加载参考模型，并作为 ref_model 传入",
                ),
                spans=(call.place.span(), stage_span(run)),
            )
