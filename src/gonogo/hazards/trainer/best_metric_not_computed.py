from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class BestMetricNotComputed(LoggedHazard):
    """metric_for_best_model names a metric that no evaluation gives.
    ## What happens
    "KeyError: \"The `metric_for_best_model` training argument is set to 'eval_accuracy', which is not found in
    the evaluation metrics\"", at the first evaluation, after the training has begun.
    ## Why
    transformers looks the name up, with `eval_` before it, among what the evaluation returned. Without
    `compute_metrics` there are only `eval_loss` and timings; with several evaluation sets their names stand
    before (`eval_validation_loss`); where the model returns no loss there is no `eval_loss` either (a missing
    `labels` column, a wrong `label_names`).
    ## Example
    ```python
    TrainingArguments(metric_for_best_model="accuracy", load_best_model_at_end=True)   # wrong without compute_metrics
    Trainer(..., compute_metrics=lambda p: {"accuracy": ...})                          # right
    ```
    ## Cure
    Return the metric from `compute_metrics` under that name, or take one of those that the message lists. With
    a dictionary of evaluation sets: `metric_for_best_model="eval_<set>_loss"`. Of a missing `eval_loss`: see to
    it that the evaluation data has labels.
    ## When it is safe
    Where neither `load_best_model_at_end` nor `metric_for_best_model` is set.
    ## Sources
    - https://github.com/huggingface/transformers/pull/31450: the message, and why
    - https://github.com/hiyouga/LlamaFactory/issues/7906: the evaluation set's name in the metric
    - https://github.com/QwenLM/Qwen3-Embedding/issues/138: no eval_loss
    """

    name = "best-metric-not-computed"
    title = Text("metric_for_best_model is no metric of the evaluation", "metric_for_best_model 不是评估给出的指标")
    log_words = ("metric_for_best_model",)
    signs = (
        Sign(
            Pattern(
                r"metric_for_best_model. training argument is set to '(?P<asked>[^']*)', which is not found in "
                r"the evaluation metrics. The available evaluation metrics are: \[(?P<there>[^\]]*)\]"
            ),
            Certainty.CERTAIN,
        ),
        Sign(
            Pattern(r"metric_for_best_model. training argument is set to '(?P<asked>[^']*)', which is not found"),
            Certainty.CERTAIN,
            cause=Text(
                "The best checkpoint is to be chosen by {asked}, which no evaluation returns.",
                "最佳检查点要按 {asked} 选择，而评估没有返回该指标。",
            ),
        ),
    )
    cause = Text(
        "The best checkpoint is to be chosen by {asked}; the evaluation returns {there}.",
        "最佳检查点要按 {asked} 选择；而评估返回的是 {there}。",
    )
    cures = (
        Text(
            "Return it from compute_metrics, or set metric_for_best_model to one that is there (eval_loss)",
            "在 compute_metrics 中返回该指标，或把 metric_for_best_model 设为已有的指标（eval_loss）",
        ),
        Text(
            "Several evaluation sets: metric_for_best_model='eval_<name of the set>_loss'; no eval_loss at "
            "all: the evaluation data needs labels",
            "多个评估集：metric_for_best_model='eval_<评估集名>_loss'；完全没有 eval_loss：评估数据需要 labels",
        ),
    )
