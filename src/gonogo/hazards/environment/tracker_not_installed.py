from gonogo.hazards.version_rule import NotInstalled
from gonogo.hazards.rule import Certainty, Environment, Findings, Pattern, Refusal, Run, Text


class TrackerNotInstalled(NotInstalled):
    """`report_to` names a tracker whose package is not installed.
    ## What happens
    The Trainer is made, and raises "RuntimeError: TensorBoardCallback requires tensorboard to be installed. Either
    update your PyTorch version or install tensorboardX", or "WandbCallback requires wandb to be installed. Run `pip
    install wandb`." It is made after the model was loaded.
    ## Why
    transformers requires none of them. Without report_to (or with `all`, before transformers 5) only the installed
    ones are used; a name asks for that one.
    ## Example
    ```sh
    python train.py --report_to wandb    # wrong, where wandb is not installed
    python train.py --report_to none    # right; or pip install wandb
    ```
    ## Cure
    Install it, or report_to: none.
    ## When it is safe
    Where the package is installed after the listing was made, or the listing is of another environment.
    ## Sources
    - https://github.com/ibm-granite/granite-tsfm/pull/15: TensorBoardCallback without tensorboard
    - https://github.com/yizhongw/Tk-Instruct/issues/5: WandbCallback requires wandb
    """

    name = "tracker-not-installed"
    title = Text("The tracker of report_to is not installed", "report_to 指定的日志工具没有安装")
    ends_at = (("transformers/integrations", "raise RuntimeError("),)
    refusal = Refusal(Pattern(r"\w+Callback requires \w+ to be installed"), Certainty.LIKELY)
    cause = Text(
        "report_to asks for {asked}, and {package} is not among the installed packages: the Trainer raises a "
        "RuntimeError when it is made.",
        "report_to 指定了 {asked}，而已安装的包中没有 {package}：建立 Trainer 时会抛出 RuntimeError。",
    )
    cure = (Text("Or report_to none", "或将 report_to 设为 none"),)

    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """A tracker by name, and a complete listing without its package."""
        reported = run.arguments.get("report_to")
        if not reported.known:
            return
        value = reported.value
        for one in value if isinstance(value, list | tuple) else str(value).replace(",", " ").split():
            name = str(one).strip("[]'\"")
            if name in _PACKAGES:
                yield from self.missing(environment, (name, reported), _PACKAGES[name])


_PACKAGES = {
    "tensorboard": ("tensorboard", "tensorboardx"),
    "wandb": ("wandb",),
    "mlflow": ("mlflow", "mlflow-skinny"),
    "swanlab": ("swanlab",),
    "comet_ml": ("comet-ml",),
    "clearml": ("clearml",),
    "neptune": ("neptune", "neptune-client"),
    "trackio": ("trackio",),
}
