from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class PkgResourcesRemoved(LoggedHazard):
    """A package imports pkg_resources, which setuptools 82 has no more.
    ## What happens
    "ModuleNotFoundError: No module named 'pkg_resources'", at the import of a package, or while pip builds one
    ("Getting requirements to build wheel did not run successfully").
    ## Why
    setuptools 82 (February 2026) removed pkg_resources after years of warnings. Older packages import it when they
    start or in their setup.py (tensorboard up to 2.20, apex, many research projects); environments of Python 3.12 and
    newer begin without setuptools at all.
    ## Example
    ```sh
    pip install tensorboard==2.20.0                       # wrong beside setuptools 82
    pip install tensorboard==2.20.0 "setuptools<81"       # right
    ```
    ## Cure
    `pip install "setuptools<81"` in the environment of the run; for a build `pip install --no-build-isolation
    PACKAGE` after it, or `PIP_CONSTRAINT` with that line. Or a newer release of the package that the innermost frame
    names (tensorboard 2.21).
    ## When it is safe
    With setuptools below 82, or packages that read their metadata with importlib.metadata.
    ## Sources
    - https://setuptools.pypa.io/en/stable/history.html: setuptools 82 removed pkg_resources
    - https://github.com/tensorflow/tensorboard/issues/7064: tensorboard 2.20 imports it
    - https://github.com/Nerogar/OneTrainer/issues/1304: a trainer beside setuptools 82
    - https://github.com/MITDeepLearning/introtodeeplearning/issues/215: while a wheel is built
    """

    name = "pkg-resources-removed"
    title = Text("pkg_resources is gone from setuptools", "setuptools 已不再带有 pkg_resources")
    log_words = ("pkg_resources",)
    anywhere = True
    signs = (Sign(Pattern(r"No module named '?pkg_resources"), Certainty.CERTAIN),)
    cause = Text(
        "A package imports pkg_resources, and there is none: setuptools 82 removed it, and a fresh environment may "
        "have no setuptools.",
        "某个包要导入 pkg_resources，但没有它：setuptools 82 已将其移除，新环境也可能没有 setuptools。",
    )
    cures = (
        Text(
            'pip install "setuptools<81" in the environment of the run (for a build: with --no-build-isolation)',
            '在运行环境中 pip install "setuptools<81"（构建时加 --no-build-isolation）',
        ),
        Text(
            "Or a newer release of the package that imports it (tensorboard 2.21)",
            "或升级导入它的包（tensorboard 2.21）",
        ),
    )
