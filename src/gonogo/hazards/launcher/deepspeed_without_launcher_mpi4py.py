from gonogo.evidence.library import is_library_path
from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.hazards.facts.launch_facts import is_plain_python
from gonogo.hazards.rule import Certainty, Finding, Findings, Hazard, Launch, Pattern, Run, Text, translated

_MPI4PY_PATTERN = Pattern(r"No module named '?mpi4py|cannot load MPI library|libmpi\w*\.so[\d.]*: cannot open")
_MPI_DISCOVERY_PATTERN = Pattern(r"mpi_discovery|attempting to detect MPI environment|detect MPI environment")
_DEEPSPEED_PATTERN = Pattern(r"(?i)deepspeed")
_OTHER_LAUNCH_WORDS = (
    *(b"mp.spawn", b"multiprocessing", b"init_process_group", b"MASTER_ADDR", b"notebook_launcher", b"ray"),
)


_LAUNCH_CURE = (
    translated(
        "Use a launcher, even on one GPU: deepspeed --num_gpus 1 train.py ..., torchrun --nproc_per_node 1 "
        "train.py ..., or accelerate launch --use_deepspeed"
    ),
    translated("Or leave DeepSpeed out for a single process"),
)


class DeepspeedWithoutLauncherMpi4py(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Plain python, with a script that calls deepspeed directly and sets none of a launcher's variables."""
        if not is_plain_python(launch, ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR")):
            return
        if run.environment.has("mpi4py"):
            return
        for script in run.scripts:
            if any(word in script.source.data for word in _OTHER_LAUNCH_WORDS):
                return
        for script in run.scripts:
            call = next(script.calls("deepspeed.initialize", "deepspeed.init_distributed"), None)
            if call is None or call.keyword("auto_mpi_discovery").truth is False:
                continue
            yield self.finding(
                self.texts["cause_in_launch"].format(path=script.source.path, call=call.name),
                certainty=Certainty.CERTAIN if run.environment.is_known_absent("mpi4py") else Certainty.LIKELY,
                cure=_LAUNCH_CURE,
                spans=(launch.place.span(), call.place.span()),
            )
            return

    def in_log(self, log: FailureLog) -> Findings:
        """mpi4py missing in DeepSpeed's MPI discovery; less certain without frames; not in the user's own import."""
        error = next(log.errors_of(says=_MPI4PY_PATTERN), None)
        line = log.find(_MPI4PY_PATTERN)
        found = error or line
        discovers = log.find(_MPI_DISCOVERY_PATTERN) is not None or log.passes("mpi_discovery", "deepspeed/comm")
        if found is None or line is None:
            yield from self._find_without_mpi4py_error(log)
            return
        library = "mpi4py" not in line.match.group(0)
        innermost = error.innermost if error else None
        own = innermost is not None and not is_library_path(innermost.path) and "deepspeed" not in innermost.path
        if (library and not discovers) or (own and not discovers):
            return
        spoken = log.find(_DEEPSPEED_PATTERN) is not None or log.setup.mentions("(?i)deepspeed")
        yield self._build_finding(
            found, Certainty.CERTAIN if discovers or spoken else Certainty.LIKELY, self.texts["missing_module_cause"]
        )

    def _find_without_mpi4py_error(self, log: FailureLog) -> Findings:
        """An error of MPI itself, or a traceback truncated at the import."""
        cut = next(
            (error for error in log.truncated_errors if error.innermost and "from mpi4py" in error.innermost.code), None
        )
        broken = (
            log.find(self.patterns["mpi_failure"])
            if log.find(_MPI_DISCOVERY_PATTERN) and not log.has("Discovered MPI settings")
            else None
        )
        if evidence := cut or broken:
            yield self._build_finding(
                evidence,
                Certainty.LIKELY,
                self.texts["missing_module_cause"] if cut else self.texts["mpi_failure_cause"],
            )

    def _build_finding(self, found: LoggedError | LineMatch, certainty: Certainty, consequence: Text) -> Finding:
        return self.log_finding(
            found,
            self.texts["cause"].format(then=consequence),
            cure=_LAUNCH_CURE,
            certainty=certainty,
            confirm=translated("The traceback goes through mpi_discovery in deepspeed/comm/comm.py"),
        )
