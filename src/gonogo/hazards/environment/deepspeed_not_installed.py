from gonogo.hazards.environment._declared import NotInstalled
from gonogo.hazards.rule import Field, Run, Text


class DeepspeedNotInstalled(NotInstalled):
    """The run uses DeepSpeed, and it is not installed.
    ## What happens
    "deepspeed: command not found", "ImportError: DeepSpeed is not available => install it using `pip3 install
    deepspeed` or build it from source", or "--deepspeed requires deepspeed".
    ## Why
    transformers, accelerate and the training frameworks install without it (`pip install llamafactory[deepspeed]`,
    `ms-swift[all]`).
    ## Example
    ```sh
    pip install transformers accelerate    # wrong: the run is given --deepspeed
    pip install transformers accelerate deepspeed    # right
    ```
    ## Cure
    pip install deepspeed, of a version that this transformers takes, in the environment that trains.
    ## When it is safe
    Where the package is installed after the listing was made, or the listing is of another environment.
    ## Sources
    - https://github.com/lavoiems/DiscreteLatentCode/issues/1: the ImportError of accelerate
    - https://github.com/hiyouga/LlamaFactory/issues/4694: the same from LLaMA-Factory
    """

    name = "deepspeed-not-installed"
    title = Text("DeepSpeed is used and not installed", "使用了 DeepSpeed 但没有安装")
    packages = ("deepspeed", "deepspeed-npu")
    cause = Text(
        "The run uses DeepSpeed, which is not among the installed packages.",
        "该训练使用 DeepSpeed，而已安装的包中没有它。",
    )

    def asked(self, run: Run) -> tuple[str, Field] | None:
        """A launch with DeepSpeed, or a config of its."""
        if run.launch is None:
            return None
        if run.launch.launcher == "deepspeed":
            return "deepspeed", Field.of("deepspeed", run.launch.place)
        return ("deepspeed", run.config_field) if run.deepspeed_on and run.config_field.known else None
