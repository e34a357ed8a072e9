from gonogo.hazards.parallel._sizes import first_given_option, has_megatron_options, integer_value
from gonogo.hazards.rule import Certainty, Findings, Launch, LoggedHazard, Run, translated


class MegatronCudaDeviceMaxConnections(LoggedHazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Megatron-LM's own program with tensor or context parallelism, on several ranks, without the variable."""
        if (
            launch.framework is not None
            or not has_megatron_options(launch)
            or not launch.variable("CUDA_DEVICE_MAX_CONNECTIONS").absent
        ):
            return  # frameworks set it themselves
        if run.uses_deepspeed:
            return  # Megatron-DeepSpeed needs it only with sequence parallelism
        if not str(launch.program.get("")).rpartition("/")[2].startswith("pretrain_"):
            return
        sizes = (
            first_given_option(launch, "tensor_model_parallel_size"),
            first_given_option(launch, "context_parallel_size"),
        )
        if all((integer_value(size) or 1) < 2 for size in sizes):
            return
        if any(gpu.capability is not None and gpu.capability >= (10, 0) for gpu in run.environment.gpus):
            return
        requested = next(size for size in sizes if (integer_value(size) or 1) > 1)
        yield self.finding(
            certainty=Certainty.LIKELY,
            cure=self.cures[:1],
            confirm=(),
            spans=(launch.place.span(), requested.span()),
            fixes=self.fix(
                translated("set CUDA_DEVICE_MAX_CONNECTIONS=1"),
                launch.setting_variable("CUDA_DEVICE_MAX_CONNECTIONS", "1"),
                safe=False,
            )
            if launch.source.writable
            else None,
        )
