import ast
from collections.abc import Iterator

from gonogo.hazards.rule import Certainty, Findings, Pattern, Run, Script, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class InferenceTensorsInTraining(LoggedHazard):
    """A tensor that was made in torch.inference_mode comes into a forward that is trained.
    ## What happens
    "RuntimeError: Inference tensors cannot be saved for backward. To work around you can make a clone to get a normal
    tensor and use it in autograd", in an embedding, a linear layer or a norm; "Inplace update to inference tensor
    outside InferenceMode is not allowed".
    ## Why
    Tensors made there have no version counter, so autograd can't keep them, token ids included: an embedding keeps its
    indices. They come from a rollout that generates in inference_mode, from a method that a library decorates with it,
    or from something filled there once and kept: a rotary cache, weights that vLLM loaded in the same process.
    ## Example
    ```python
    with torch.inference_mode():    # wrong: the ids that it gives go into the trained forward
        ids = model.generate(prompt)
    with torch.no_grad():    # right
        ids = model.generate(prompt)
    loss = model(ids, labels=ids).loss
    ```
    ## Cure
    Write torch.no_grad() where the tensor is made, or clone() it outside of inference_mode. For a cache or weights that
    were filled there: make them anew before training, or update the library.
    ## When it is safe
    Where nothing that inference_mode made reaches a forward whose loss is trained.
    ## Sources
    - https://github.com/jingyaogong/minimind/issues/754: ids of a rollout in a GRPO loop on four GPUs
    - https://github.com/facebookresearch/dinov2/issues/472: a model's forward that a library decorates
    - https://github.com/modelscope/ms-swift/issues/3261: GRPO with vLLM in the trainer's process
    - https://github.com/hiyouga/LlamaFactory/issues/220: PPO, mended by a release
    """

    name = "inference-tensors-in-training"
    title = Text("A tensor of torch.inference_mode is used in training", "训练中使用了 torch.inference_mode 产生的张量")
    log_words = ("nference tensor",)
    signs = (
        Sign(
            Pattern(r"Inference tensors cannot be saved for backward|Inplace update to inference tensor outside"),
            Certainty.CERTAIN,
        ),
    )
    anywhere = True
    cause = Text(
        "A tensor that was made in torch.inference_mode is used where gradients are computed, which autograd refuses.",
        "在计算梯度的地方使用了 torch.inference_mode 中产生的张量，autograd 拒绝保存它。",
    )
    cures = (
        Text(
            "torch.no_grad() in place of torch.inference_mode() where it is made (a rollout, a decorator)",
            "在产生它的地方（rollout、装饰器）用 torch.no_grad() 代替 torch.inference_mode()",
        ),
        Text(
            "Or clone() it outside of inference_mode; make caches and weights that were filled there anew",
            "或在 inference_mode 之外 clone()；在其中填充过的缓存和权重要重新建立",
        ),
        Text(
            "Where a library makes it (vLLM, unsloth, a trainer's rollout): update it",
            "若由库产生（vLLM、unsloth、训练器的 rollout）：升级该库",
        ),
    )

    def in_script(self, script: Script, run: Run) -> Findings:
        """A name bound in inference_mode that the same function gives to a model, and trains by what comes of it."""
        if b"inference_mode" not in script.source.data or b".backward(" not in script.source.data:
            return
        for call in script.calls("torch.inference_mode"):
            block = next((one for one in script.ancestors(call.node) if isinstance(one, ast.With)), None)
            around = script.enclosing_function(call.node)
            if block is None or around is None or all(item.context_expr is not call.node for item in block.items):
                continue
            bound = {target.id for node in block.body for target in _targets(node)}
            later = [node for node in ast.walk(around) if getattr(node, "lineno", 0) > (block.end_lineno or 0)]
            if not any(isinstance(node, ast.Attribute) and node.attr == "backward" for node in later):
                continue
            bound -= {target.id for node in later for target in _targets(node)}
            used = next((node for node in later if isinstance(node, ast.Call) and _trains_on(node, bound)), None)
            if used is None or _without_gradients(script, used):
                continue
            yield self.finding(
                Text(
                    "What is made here in torch.inference_mode goes into a forward that is trained.",
                    "此处在 torch.inference_mode 中产生的张量会进入参与训练的 forward。",
                ),
                certainty=Certainty.LIKELY,
                cure=self.cures[:2],
                spans=(call.place.span(), script.place(used).span(Text("used here", "在此处使用"))),
                confirm=Text(
                    "The tensor reaches an operator that keeps it for backward", "该张量进入会为 backward 保存它的算子"
                ),
            )


def _targets(node: ast.AST) -> Iterator[ast.Name]:
    """The plain names that a statement, or what is in it, binds."""
    for one in ast.walk(node):
        if isinstance(one, ast.Assign):
            for target in one.targets:
                yield from (part for part in ast.walk(target) if isinstance(part, ast.Name))


def _trains_on(call: ast.Call, names: set[str]) -> bool:
    """Whether it calls a model with one of the names as it is."""
    callee = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    given = (*call.args, *(keyword.value for keyword in call.keywords))
    return callee.endswith("model") and any(isinstance(one, ast.Name) and one.id in names for one in given)


def _without_gradients(script: Script, node: ast.AST) -> bool:
    blocks = (one for one in script.ancestors(node) if isinstance(one, ast.With))
    names = (ast.unparse(item.context_expr) for block in blocks for item in block.items)
    return any("no_grad" in name or "inference_mode" in name for name in names)
