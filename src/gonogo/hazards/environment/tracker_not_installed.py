from gonogo.hazards.rule import Environment, Findings, Run
from gonogo.hazards.version_rule import PackageNotInstalled


class TrackerNotInstalled(PackageNotInstalled):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """A tracker requested by name, and a complete listing of packages without it."""
        reported = run.arguments.get("report_to")
        if not reported.known:
            return
        value = reported.value
        for one in value if isinstance(value, list | tuple) else str(value).replace(",", " ").split():
            name = str(one).strip("[]'\"")
            if name in _PACKAGES_BY_TRACKER:
                yield from self.missing_package_findings(environment, (name, reported), _PACKAGES_BY_TRACKER[name])


_PACKAGES_BY_TRACKER = {
    "tensorboard": ("tensorboard", "tensorboardx"),
    "wandb": ("wandb",),
    "mlflow": ("mlflow", "mlflow-skinny"),
    "swanlab": ("swanlab",),
    "comet_ml": ("comet-ml",),
    "clearml": ("clearml",),
    "neptune": ("neptune", "neptune-client"),
    "trackio": ("trackio",),
}
