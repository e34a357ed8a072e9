from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class RolloutPromptLongerThanAllowed(LoggedHazard):
    """verl is told to fail on prompts that are longer than `data.max_prompt_length`, and the data has one.
    ## What happens
    "NotImplementedError: sequence_length=1036 is larger than max_length=1024", "RuntimeError: Prompt length 1036 is
    longer than 1024." in the data loader.
    ## Why
    `data.truncation` is `error` by default: a cut prompt would change the task. The chat template and image tokens
    count.
    ## Example
    ```sh
    python -m verl.trainer.main_ppo data.max_prompt_length=1024                                   # wrong
    python -m verl.trainer.main_ppo data.max_prompt_length=1024 data.filter_overlong_prompts=True # right
    ```
    ## Cure
    `data.filter_overlong_prompts=True` leaves such samples out; or a longer `data.max_prompt_length`; or
    `data.truncation=left`.
    ## When it is safe
    Where overlong prompts are filtered.
    ## Sources
    - https://verl.readthedocs.io/en/latest/examples/config.html: data.truncation and data.filter_overlong_prompts
    - https://github.com/verl-project/verl/blob/main/verl/utils/dataset/rl_dataset.py: where it is raised
    """

    name = "rollout-prompt-longer-than-allowed"
    title = Text(
        "A prompt is longer than max_prompt_length, and truncation is an error",
        "提示超过 max_prompt_length，而截断方式为报错",
    )

    log_words = ("is larger than max_length", "sequence_length=", "Prompt length")
    anywhere = True
    signs = (
        Sign(
            Pattern(
                r"sequence_length=(?P<length>\d+) is larger than (?:self\.)?max_length=(?P<limit>\d+)"
                r"|Prompt length (?P<length_>\d+) is longer than (?P<limit_>\d+)\."
            ),
            Certainty.CERTAIN,
        ),
        Sign(
            types=("NotImplementedError", "RuntimeError", ""),
            frames=(("rl_dataset.py", "multiturn_sft_dataset"), ("postprocess_data", "truncation")),
        ),
    )
    cause = Text(
        'A prompt of the data is longer than data.max_prompt_length, and data.truncation is "error", the default.',
        "数据中有提示超过 data.max_prompt_length，而 data.truncation 为默认的 “error”。",
    )
    cures = (
        Text(
            "data.filter_overlong_prompts=True, a longer data.max_prompt_length, or data.truncation=left",
            "设 data.filter_overlong_prompts=True、增大 data.max_prompt_length，或 data.truncation=left",
        ),
    )
    confirm = (Text("The message gives the length of the prompt and the limit", "消息给出提示长度与上限"),)
