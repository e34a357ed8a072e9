import ast
from collections.abc import Iterator

from gonogo.hazards.rule import Certainty, Findings, Pattern, Run, Script, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_ARGUMENTS = Pattern(
    r"got an unexpected keyword argument|got multiple values for|missing \d+ required|takes \d+ positional"
)
_SCORES = (
    "_calculate_rewards",
    "reward_func(",
    "compute_score",
    "reward_manager",
    "reward_fn",
    "_score_completions",
    "reward_model_plugin",
)
_RL = Pattern(r"(?i)rlhf|grpo|rloo|\bppo|reward|verl")
_NOT_REWARDS = Pattern(r"(?:__init__|forward|from_pretrained|compute_loss|training_step|get_\w+|load_\w+)\(\) missing")
_ALWAYS_PASSED = ("prompts", "completions", "completion_ids")


class RewardFunctionSignature(LoggedHazard):
    """The trainer calls the reward function with other arguments than it has.
    ## What happens
    "formatting_reward_func() got multiple values for keyword argument 'completions'", "reward() got an unexpected
    keyword argument 'completion_ids'", "missing 2 required positional arguments: 'clean_response' and 'key_response'"
    at the first scoring, after minutes of generation.
    ## Why
    TRL calls `reward_func(prompts=…, completions=…, completion_ids=…, **columns of the data set, trainer_state=…)`;
    ms-swift `__call__(self, completions, **columns)`; verl `compute_score(data_source, solution_str, ground_truth,
    extra_info)`. A parameter that is neither one of these nor a column is missing; a column called `completions` is
    there twice; without `**kwargs` all further ones are unexpected.
    ## Example
    ```python
    def reward(prompts, completions):        # wrong: completion_ids and all columns come too
    def reward(completions, **kwargs):       # right
        return [float(len(one)) for one in completions]
    ```
    ## Cure
    Write `def reward(completions, **kwargs)` and name only columns that the data set has; keep them with
    `remove_unused_columns=False`; rename a column that has the name of an argument.
    ## When it is safe
    Where the function takes `**kwargs` and every further parameter has a column or a default.
    ## Sources
    - https://github.com/huggingface/trl/issues/4825: a column named completions
    - https://github.com/modelscope/ms-swift/issues/7069: columns that the data does not have
    - https://github.com/huggingface/trl/issues/4939: completion_ids without **kwargs
    - https://github.com/gensyn-ai/rl-swarm/issues/340: missing: answer
    - https://github.com/hiyouga/EasyR1/issues/338: takes 1 positional argument but 2 were given
    """

    name = "reward-function-signature"
    title = Text("The reward function does not take what the trainer passes", "奖励函数不接受训练器传入的参数")

    log_words = ("reward", "required positional argument", "compute_score")
    ends_at = (("grpo_trainer.py", "reward_func("),)
    traces = ("missing required positional arguments: '",)
    anywhere = True
    signs = (
        Sign(_ARGUMENTS, types=("TypeError",), frames=(_SCORES,)),
        Sign(
            Pattern(
                r"\w*(?:reward|score|_orm|ORM|verif)\w*(?:\.__call__)?\(\) (?:got (?:an unexpected|multiple values)"
                r"|missing \d+ required|takes)"
            )
        ),
        Sign(
            Pattern(
                r"got (?:an unexpected keyword argument|multiple values for (?:keyword )?argument) '(?:completions?"
                r"|completion_ids|prompts?|solution_str|trainer_state|log_extra|log_metric)'"
            )
        ),
        Sign(
            Pattern(
                r"missing (?:\d+ )?required positional arguments?: '(?:completions|solution_str|ground_truth"
                r"|data_source|extra_info|solution|answer)'"
            ),
            beside=_RL,
        ),
        Sign(Pattern(r"missing (?:\d+ )?required positional arguments?"), beside=_RL, unless=_NOT_REWARDS),
        Sign(
            types=("",),
            frames=(("output_reward_func = reward_func(", "reward_func(**", "compute_score("),),
            certainty=Certainty.POSSIBLE,
        ),
    )
    cause = Text(
        "The reward function's parameters are not those that the trainer passes: prompts, completions, "
        "completion_ids and the columns of the data set, all by name.",
        "奖励函数的参数与训练器按名称传入的不同：prompts、completions、completion_ids 以及数据集各列。",
    )
    cures = (
        Text(
            "def reward(completions, **kwargs): take what is needed by name, the rest by **kwargs",
            "def reward(completions, **kwargs)：需要的按名称接收，其余由 **kwargs 接收",
        ),
        Text(
            "A required parameter has to be a column of the data set (kept by remove_unused_columns=False); "
            "rename columns called prompts or completions",
            "必需的参数须是数据集的列（用 remove_unused_columns=False 保留）；名为 prompts、completions 的列要改名",
        ),
    )
    confirm = (
        Text(
            "The frame above the message is the trainer's call of the reward function",
            "消息上方的栈帧是训练器对奖励函数的调用",
        ),
    )

    def in_script(self, script: Script, run: Run) -> Findings:
        """Functions given as reward_funcs that cannot take what TRL passes always."""
        if b"reward_funcs" not in script.source.data and b"GRPOTrainer" not in script.source.data:
            return
        for call in script.calls("trl.GRPOTrainer", "trl.RLOOTrainer"):
            node = call.keyword_node("reward_funcs") or (call.node.args[1] if len(call.node.args) > 1 else None)
            for function in _functions(script, node):
                lacking = _lacking(function)
                if not lacking:
                    continue
                version = run.environment.within("trl", ">=0.18")
                yield self.finding(
                    Text(
                        "TRL calls {name} with {lacking} by name (and with every column of the data set), and it takes "
                        "neither them nor **kwargs.",
                        "TRL 会按名称把 {lacking}（以及数据集的每一列）传给 {name}，而它既不接受这些参数也没有 "
                        "**kwargs。",
                    ).format(name=function.name, lacking=", ".join(lacking)),
                    certainty=Certainty.CERTAIN if version else Certainty.LIKELY,
                    cure=Text("Give it **kwargs", "为它加上 **kwargs"),
                    spans=(
                        script.headline(function).span(),
                        call.place.span(Text("the trainer that calls it", "调用它的训练器")),
                    ),
                    confirm=() if version else self.confirm,
                )


def _functions(script: Script, node: ast.AST | None) -> Iterator[ast.FunctionDef]:
    """The functions of this file that an expression names, alone or in a list."""
    names = node.elts if isinstance(node, (ast.List, ast.Tuple)) else [node]
    wanted = {one.id for one in names if isinstance(one, ast.Name)}
    for statement in script.tree.body if script.tree is not None else ():
        if isinstance(statement, ast.FunctionDef) and statement.name in wanted and not statement.decorator_list:
            yield statement


def _lacking(function: ast.FunctionDef) -> list[str]:
    """What the function is passed always and doesn't take."""
    arguments = function.args
    if arguments.kwarg is not None:
        return []
    taken = {one.arg for one in (*arguments.args, *arguments.kwonlyargs)}
    return [name for name in _ALWAYS_PASSED if name not in taken]
