from gonogo.hazards.facts.installed import describe_package, package_version_span
from gonogo.hazards.rule import Certainty, Findings, LoggedHazard, Run, Script, translated


class DatasetScriptUnsupported(LoggedHazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """``load_dataset`` with a Python file, or with permission to run one, under datasets 4."""
        if b"load_dataset" not in script.source.data or run.environment.within("datasets", ">=4") is not True:
            return
        for call in script.calls("datasets.load_dataset"):
            path = call.argument(0) if call.node.args else call.keyword("path")
            trusted = call.keyword("trust_remote_code")
            is_file = path.known and str(path.value).endswith(".py")
            if not is_file and trusted.truth is not True:
                continue
            if not is_file and path.known and str(path.value) in _FILE_BUILDERS:
                continue  # a built-in loader of datasets, which runs no remote code
            yield self.finding(
                (self.texts["loading_script_cause"] if is_file else self.texts["trust_remote_code_cause"]).format(
                    installed=describe_package(run.environment, "datasets"), path=path.value if path.known else "?"
                ),
                certainty=Certainty.CERTAIN if is_file else Certainty.POSSIBLE,
                spans=(path.span() if is_file else trusted.span(), package_version_span(run.environment, "datasets")),
                confirm=translated("The dataset's repository has a .py file"),
            )


_FILE_BUILDERS = ("json", "csv", "parquet", "text", "arrow", "imagefolder", "audiofolder", "webdataset")
