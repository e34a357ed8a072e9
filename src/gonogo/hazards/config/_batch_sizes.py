"""DeepSpeed's three batch sizes, held against each other and the number of processes as DeepSpeed does."""

from __future__ import annotations

import msgspec

from gonogo.evidence.config.deepspeed import DeepSpeedConfig
from gonogo.evidence.field import Field
from gonogo.evidence.run import Run
from gonogo.finding import Certainty, Finding, Fix, Text
from gonogo.hazards.facts.how_it_trains import fix_of, mentions, number_in, with_accelerate, with_trainer
from gonogo.hazards.hazard import Hazard

TRAIN, MICRO, ACCUMULATION = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"


class BrokenSizes(msgspec.Struct, frozen=True):
    """The sizes as DeepSpeed takes them. ``world`` is None where no number of processes would do."""

    train: Field
    micro: Field | None
    accumulation: Field | None
    world: int | None
    said: str


def broken_sizes(config: DeepSpeedConfig, run: Run) -> BrokenSizes | None:
    """The sizes where DeepSpeed refuses them; None where it takes them or that can't be told."""
    train = number_in(config, TRAIN)
    if train is None or not _all_ranks_share_data(config, run):
        return None
    micro, accumulation = config.get(MICRO), config.get(ACCUMULATION)
    if with_trainer(run) is not False and (config.is_auto(MICRO) or config.is_auto(ACCUMULATION)):
        return None  # transformers compares it with its own arguments first: ds-config-hf-args-mismatch
    sizes = [_size(field) for field in (micro, accumulation)]
    if any(size is None for size in sizes):
        return None
    micro_size, accumulation_size = sizes[0] or 0, sizes[1] or 0
    if not accumulation_size and micro_size and with_accelerate(run):
        accumulation_size = 1  # accelerate's plugin fills in what the JSON leaves out
    world = run.world_size
    if train.value <= 0 or (world is not None and world <= 0):
        return None
    if world is None and with_trainer(run) is None and run.launch is not None:
        return None
    wrong = _refused(train.value, micro_size, accumulation_size, world)
    if wrong is None:
        return None
    given = (
        micro if micro_size and micro.place is not None else None,
        accumulation if accumulation_size and accumulation.place is not None else None,
    )
    return BrokenSizes(train, *given, world, wrong)


def _size(field: Field) -> int | None:
    """The number, 0 where there is none, None where it can't be told or is no number."""
    if field.absent or (field.known and field.value is None):
        return 0
    value = field.value if field.known else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _refused(train: int, micro: int, accumulation: int, world: int | None) -> str | None:
    """The inequality that DeepSpeed would print; None where it holds (``_set_batch_related_parameters``)."""
    if world is None:
        least = (micro or 1) * (accumulation or 1)
        return None if train % least == 0 else f"{train} % ({micro or 1} * {accumulation or 1}) = {train % least}"
    if micro and not accumulation:
        accumulation = train // micro // world
    elif not micro:
        accumulation = accumulation or 1
        micro = train // world // accumulation
    if train == micro * accumulation * world:
        return None
    return f"{train} != {micro} * {accumulation} * {world}"


def _all_ranks_share_data(config: DeepSpeedConfig, run: Run) -> bool:
    """Whether each process takes its own share of a batch: not with pipelines, tensor or sequence parallelism."""
    for keys in (("tensor_parallel",), ("sequence_parallel_size",), ("pipeline",), ("autotuning", "enabled")):
        field = config.raw(*keys)
        if field.unknown or (field.known and field.value not in (False, None, 1)):
            return False
    return not mentions(run, "PipelineModule", "mpu=", "sequence_parallel", "tensor_parallel", "model_parallel")


def found_in_config(hazard: Hazard, broken: BrokenSizes, config: DeepSpeedConfig, run: Run) -> Finding:
    """The finding, at ``train_batch_size``."""
    changed = mentions(run, '"train_batch_size"', "'train_batch_size'")
    world = run.launch.world_size if run.launch is not None else Field.missing()
    if broken.world is None:
        cause = Text(
            en="train_batch_size = {train} is no multiple of micro-batch * accumulation ({said}), so no number of GPUs "
            "fits.",
            zh="train_batch_size = {train} 不是 micro-batch * 梯度累积的整数倍（{said}），任何 GPU 数量都不成立。",
        )
    else:
        cause = Text(
            en="The launch starts {world} process(es), and train_batch_size = micro-batch * accumulation * processes "
            "does not hold: {said}.",
            zh="此次启动共有 {world} 个进程，而等式 train_batch_size = micro-batch * 梯度累积 * 进程数不成立：{said}。",
        )
    spans = [broken.train.span()]
    if broken.micro is not None:
        spans.append(broken.micro.span(Text("the micro-batch", "micro-batch 大小")))
    if broken.accumulation is not None:
        spans.append(broken.accumulation.span(Text("the accumulation", "梯度累积")))
    if broken.world is not None:
        label = Text("starts {world} process(es)", "启动 {world} 个进程").format(world=broken.world)
        spans.append(world.span(label))
    return hazard.finding(
        cause.format(train=broken.train.value, world=broken.world, said=broken.said),
        certainty=Certainty.LIKELY if changed else Certainty.CERTAIN,
        cure=(_cure(broken, config),),
        spans=tuple(spans),
        fixes=_fixes(config, run),
        confirm=(
            Text("The script leaves the config's train_batch_size as it is", "脚本没有改写配置中的 train_batch_size"),
        )
        if changed
        else (),
    )


def _cure(broken: BrokenSizes, config: DeepSpeedConfig) -> Text:
    micro, accumulation = number_in(config, MICRO), number_in(config, ACCUMULATION)
    if broken.world and micro is not None and accumulation is not None:
        return Text(
            en='Leave train_batch_size out ("auto" under the Trainer), or set it to {right} = {micro} * '
            "{accumulation} "
            "* {world}",
            zh='不写 train_batch_size（Trainer 下设为 "auto"），或设为 {right} = {micro} * {accumulation} * {world}',
        ).format(
            right=micro.value * accumulation.value * broken.world,
            micro=micro.value,
            accumulation=accumulation.value,
            world=broken.world,
        )
    return Text(
        en='Leave train_batch_size out ("auto" under the Trainer): DeepSpeed computes it from the micro-batch, the '
        "accumulation and the number of processes",
        zh='不写 train_batch_size（Trainer 下设为 "auto"）：DeepSpeed 会由 micro-batch、梯度累积和进程数算出它',
    )


def _fixes(config: DeepSpeedConfig, run: Run) -> tuple[Fix, ...]:
    if with_accelerate(run):
        title = Text('Set train_batch_size to "auto"', '把 train_batch_size 设为 "auto"')
        return fix_of(title, lambda: config.replacing(TRAIN, value="auto"))
    if number_in(config, MICRO) is not None:
        title = Text("Remove train_batch_size: DeepSpeed computes it", "删除 train_batch_size，由 DeepSpeed 计算")
        return fix_of(title, lambda: config.removing(TRAIN), safe=number_in(config, ACCUMULATION) is not None)
    return ()
