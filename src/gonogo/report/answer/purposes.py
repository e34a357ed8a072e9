"""How a report words what its next command does, or what comes before it."""

from __future__ import annotations

from gonogo.finding import Text, translated
from gonogo.finding.remedy import Purpose

PURPOSE_TEXTS: dict[Purpose, Text] = {
    Purpose.NOTHING_LEFT: translated("nothing is left to do"),
    Purpose.RUN: translated("on the machine with the GPUs"),
    Purpose.CURE: translated("finds the smallest change that makes it GO"),
    Purpose.EXPLAIN: translated("what it is, and how to cure it"),
    Purpose.REHEARSE: translated("runs the program itself, on virtual GPUs"),
    Purpose.BUILD_ENVIRONMENT: translated("creates that environment, and rehearses in it"),
    Purpose.PROVE_CURE: translated("proves the cure before the next launch"),
    Purpose.KEEP_RECORDS: translated("keeps what each rank printed"),
    Purpose.READ_RECORDS: translated("what each rank printed is in {subject}"),
    Purpose.EXTEND_TIMEOUT: translated("gives it more time"),
    Purpose.APPLY_FIX: translated("applies the suggested fix"),
    Purpose.APPLY_PATCH: translated("in {folder}"),
    Purpose.WRITE_LAUNCH_FILES: translated("writes the files to launch it with"),
    Purpose.COUNT_GPUS: translated("says how many are enough"),
    Purpose.LIST_GPUS: translated("lists larger GPUs"),
    Purpose.READ_RUN_FILES: translated("reads the run's own files along with the logs"),
    Purpose.READ_PROJECT_FILES: translated("reads a project's files along with it"),
    Purpose.SHOW_CURVES: translated("shows both memory curves"),
    Purpose.READ_CURVES: translated("the table and the curves show what grew"),
    Purpose.SHOW_MEMORY: translated("shows what uses the memory"),
    Purpose.GIVE_LAUNCH: translated("gonogo rehearse takes the command that launches the run, after --"),
    Purpose.KEEP_SETTINGS: translated("to keep it, set {settings} in {files}"),
    Purpose.PIN_VERSIONS: translated("installs the versions that the run needs"),
    Purpose.NEAREST_RELEASE: translated("the nearest release that works"),
    Purpose.GENERATE: translated("generates what is missing here"),
    Purpose.GENERATE_ROWS: translated("generates more rows; then rehearse again"),
    Purpose.DOWNLOAD: translated("downloads what the program asks for; then rehearse again"),
    Purpose.INSTALL_PACKAGE: translated("installs it for this rehearsal only"),
    Purpose.PASS_VARIABLE: translated("passes the variable on"),
    Purpose.OWN_ENVIRONMENT: translated("run this in the run's own environment"),
    Purpose.AFTER_TORCH: translated(
        "once a CPU build of {subject} can be installed here, from PyTorch's index or a folder of wheels"
    ),
    Purpose.RELEASES_OF_TODAY: translated("with the releases of today in place of those of that day"),
    Purpose.OTHER_PYTHON: translated("run this with gonogo installed for Python {subject}"),
    Purpose.COUNT_OF_NODE: translated("run this with as many GPUs as each node has"),
    Purpose.ALL_RANKS: translated("rehearses all ranks"),
    Purpose.ONE_RANK: translated("rehearses one rank, which takes less memory here"),
    Purpose.MORE_STEPS: translated("rehearses more steps, so that the program saves"),
    Purpose.NAME_OPTIONS: translated("run this with the folder that the program saves to"),
    Purpose.NAME_PROGRAM: translated("with your own program in place of {subject}"),
    Purpose.ENABLE_NAMESPACES: translated("says how to enable user namespaces"),
    Purpose.AFTER_COPY: translated("run this once {subject} is there"),
    Purpose.AFTER_FILES: translated("run this once {subject} is there, or a few rows of it"),
    Purpose.AFTER_DATA: translated("run this once a few of the program's data files are there"),
    Purpose.AFTER_STEP: translated("run this after the step that writes it: {subject}"),
    Purpose.AFTER_INSTALL: translated("run this once {subject} is installed here"),
    Purpose.AFTER_CHANGE: translated("run this once that is changed"),
}
