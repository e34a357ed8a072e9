from gonogo.hazards.environment._needs import not_installed
from gonogo.hazards.rule import Environment, Field, Findings, Hazard, Run, Text


class DeepspeedNotInstalled(Hazard):
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

    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """A launch with DeepSpeed, or a config of its, and a complete listing without it."""
        asked = _asks(run)
        if asked is None:
            return
        yield from not_installed(
            self,
            environment,
            run,
            "deepspeed",
            asked,
            Text(
                "The run uses DeepSpeed, which is not among the installed packages.",
                "该训练使用 DeepSpeed，而已安装的包中没有它。",
            ),
            also=("deepspeed-npu",),
        )


def _asks(run: Run) -> Field | None:
    """What asks for DeepSpeed: its launcher, or the name of a config."""
    if run.launch is None:
        return None
    if run.launch.launcher == "deepspeed":
        return Field.of("deepspeed", run.launch.place)
    if run.deepspeed_on and run.config_field.known:
        return run.config_field
    return None
