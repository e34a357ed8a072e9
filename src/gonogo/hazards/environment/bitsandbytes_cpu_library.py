from gonogo.evidence.environment.compatibility import bitsandbytes_cuda_versions
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.hazards.environment._bitsandbytes import bitsandbytes_use
from gonogo.hazards.environment._surroundings import first, has_other_failure
from gonogo.hazards.facts.installed import alone, span_of, together
from gonogo.hazards.rule import Certainty, Environment, Findings, Hazard, Pattern, Run, Severity, translated

_LIBRARY_LOAD_FAILURE_PATTERN = Pattern(
    r"libbitsandbytes\w*\.(?:so|dll)\S*:? .{0,40}(?:undefined symbol|cannot open shared object)"
    r"|undefined symbol: c(?:get_col_row|quantize|dequantize|adam|lion|gemm|igemm|get_context|momentum|rmsprop"
    r"|transform)\w*"
    r"|function 'c(?:get_|quantize|dequantize|adam|igemm|gemm)\w+' not found"
    r"|'NoneType' object has no attribute 'c(?:get_|quantize|dequantize|adam|igemm|gemm|percentile)\w+"
    r"|name 'str2optimizer\w+' is not defined|CUDA Setup failed despite GPU being available"
    r"|Attempted to use bitsandbytes native library but it'?s not available"
    r"|8-bit optimizer is not available on your device"
)
_CPU_LIBRARY_LOADED_PATTERN = Pattern(
    r"bin \S*libbitsandbytes_cpu\.(?:so|dll)|[Ll]oading binary \S*libbitsandbytes_cpu"
    r"|Defaulting to libbitsandbytes(?:_cpu)?\.so"
    r"|Required library version not found: libbitsandbytes|Could not find the bitsandbytes CUDA binary"
    r"|Configured CUDA binary not found at|Could not load bitsandbytes native library|libbitsandbytes_cpu\.(?:so|dll)"
    r"|bitsandbytes was compiled without GPU support"
)
_BITSANDBYTES_PATTERN = Pattern(r"bitsandbytes|cget_col_row|cquantize|str2optimizer")
_CURE = (
    translated(
        "Install a bitsandbytes build with a library for PyTorch's CUDA version: pip install -U "
        "bitsandbytes; python -m bitsandbytes shows which one it loads"
    ),
    translated(
        "Let it find libcudart: export LD_LIBRARY_PATH=$CUDA_HOME/lib64:$LD_LIBRARY_PATH (conda: conda install "
        "cudatoolkit); unset a BNB_CUDA_VERSION that names a version without a library"
    ),
    translated("Check that torch.cuda.is_available() is True: without a GPU, bitsandbytes loads only its CPU library"),
)


class BitsandbytesCpuLibrary(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """A bitsandbytes without a library for torch's CUDA version, if the run needs it."""
        version, cuda = environment.version("bitsandbytes"), environment.cuda.string
        if version is None or cuda is None or not together(environment, "bitsandbytes", "torch"):
            return
        use = bitsandbytes_use(run)
        if use is None and not alone(run):
            return
        known = bitsandbytes_cuda_versions(version)
        minor = ".".join(cuda.split(".")[:2])
        if known is None or minor in known[0]:
            return
        yield self.finding(
            translated(
                "bitsandbytes {version} ships libraries for CUDA {built}, but torch was built for {cuda}: only "
                "the CPU library is left, which has no quantization and no 8-bit optimizer."
            ).format(version=version, built=", ".join(known[0]), cuda=minor),
            certainty=Certainty.LIKELY,
            severity=Severity.ERROR if use is not None else Severity.WARNING,
            cure=_CURE[:1],
            spans=(
                span_of(environment, "bitsandbytes"),
                span_of(environment, "torch", translated("CUDA {cuda}").format(cuda=minor)),
                use.span() if use is not None else None,
            ),
            confirm=translated("python -m bitsandbytes fails"),
        )

    def in_log(self, log: FailureLog) -> Findings:
        """A call into the CPU library; a mere sign that it was loaded counts only if nothing else failed."""
        evidence = first(log, _LIBRARY_LOAD_FAILURE_PATTERN)
        certainty = Certainty.CERTAIN
        if evidence is None:
            evidence = first(log, _CPU_LIBRARY_LOADED_PATTERN)
            if evidence is None or has_other_failure(log, _BITSANDBYTES_PATTERN):
                return
            certainty = Certainty.LIKELY
        yield self.log_finding(
            evidence,
            translated("bitsandbytes runs with its CPU library: it found no CUDA library that fits this machine."),
            cure=_CURE,
            certainty=certainty,
            confirm=translated("python -m bitsandbytes fails"),
        )
