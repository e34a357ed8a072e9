"""Hazards judge code by its names, values and calls, not by letters that its text happens to have.

The cases differ in a name or a text with the letters of another word in it: `rank` in `rerank`, `main` in `domain`.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from gonogo.check.findings import check
from gonogo.evidence.run import Run
from gonogo.evidence.script.project import read_script
from gonogo.evidence.source_file import SourceFile
from gonogo.finding import Certainty, Finding
from gonogo.finding.frame import Frame
from gonogo.hazards.facts import leaf_modules
from gonogo.prepare import named_inputs

LAUNCH = "torchrun --nproc_per_node 2 train.py\n"
DEEPSPEED = "deepspeed --num_gpus 2 train.py --deepspeed ds.json\n"
DDP = """\
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
model = DistributedDataParallel(nn.Linear(8, 2).cuda(), device_ids=[local_rank])
optimizer = torch.optim.AdamW(model.parameters())
"""
ENGINE = """\
import deepspeed
import torch
import torch.distributed as dist
from torch import nn

model = nn.Linear(8, 2)
engine, optimizer, _, _ = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters())
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GONOGO_DEBUG", "1")
    monkeypatch.chdir(tmp_path)


def found(hazard: str, script: str, launch: str = LAUNCH, **config: object) -> list[Finding]:
    """What a hazard finds in a project of one script, its launch and a config."""
    Path("train.py").write_text(script)
    Path("run.sh").write_text(launch)
    if config:
        Path("ds.json").write_text(json.dumps(config))
    report = check(["run.sh"], use_installed=False).report
    return [finding for finding in report.findings if finding.hazard == hazard]


def lines(findings: list[Finding]) -> list[int]:
    return sorted(finding.spans[0].line for finding in findings)


class TestTestsOfRanks:
    """``mentions_rank`` and ``on_one_rank``."""

    BARRIER = "collective-in-branch-of-one-rank"
    LONE = "if dist.get_rank() == 0:\n    print(model)\n    dist.barrier()\n"

    @pytest.mark.parametrize(
        "condition",
        [
            'args.domain == "code"',
            'args.topic == "code"',
            "cfg.rerank",
            "args.remaining > 0",
            'mode == "main"',
            "args.webmaster",
            "args.locale",
            "args.nonzero",
            "args.lora_rank > 8",
            "torch.linalg.matrix_rank(weight) > 4",
        ],
    )
    def test_a_barrier_under_another_condition_is_no_branch_of_the_other_ranks(self, condition: str) -> None:
        findings = found(self.BARRIER, f"{DDP}if {condition}:\n    dist.barrier()\n{self.LONE}")
        assert [(one.spans[0].line, one.certainty) for one in findings] == [(17, Certainty.CERTAIN)]

    @pytest.mark.parametrize(
        "condition",
        [
            "local_rank != 0",
            "not (local_rank == 0)",
            "dist.get_rank() > 0",
            'os.environ["RANK"] != "0"',
            "not is_main_process()",
            "not accelerator.is_main_process",
            "not isMaster",
            "myrank != 0",
            "others",
        ],
    )
    def test_a_barrier_of_the_other_ranks_goes_with_the_one_rank_s(self, condition: str) -> None:
        script = f"{DDP}others = local_rank != 0\nif {condition}:\n    dist.barrier()\n{self.LONE}"
        assert found(self.BARRIER, script) == []

    def test_what_the_other_ranks_call_too_says_nothing_of_another_call(self) -> None:
        both = "if local_rank != 0:\n    dist.barrier()\nif local_rank == 0:\n    dist.barrier()\n"
        alone = "if local_rank == 0:\n    dist.broadcast(torch.zeros(1).cuda(), 0)\n"
        findings = found(self.BARRIER, f"{DDP}{both}{alone}")
        assert lines(findings) == [18]

    def test_the_other_ranks_may_come_to_it_through_a_function(self) -> None:
        wait = "def wait():\n    dist.barrier()\n\n\n"
        script = f"{DDP}{wait}if local_rank != 0:\n    wait()\n{self.LONE}"
        assert found(self.BARRIER, script) == []
        script = f"{DDP}{wait}wait()\n{self.LONE}"
        assert len(found(self.BARRIER, script)) == 1

    def test_a_barrier_of_the_other_ranks_in_another_function_may_belong_to_it(self) -> None:
        script = f"{DDP}def wait():\n    if local_rank != 0:\n        dist.barrier()\n\n\ndef go():\n    {self.LONE}"
        script = (
            script.replace("\n    print(model)\n    dist.barrier()", "\n        dist.barrier()") + "\n\nwait()\ngo()\n"
        )
        findings = found(self.BARRIER, script)
        assert [one.certainty for one in findings] == [Certainty.POSSIBLE]

    @pytest.mark.parametrize("condition", ["local_rank != -1", "local_rank >= 0", "local_rank > -1", "world_size > 1"])
    def test_a_test_that_all_ranks_pass_is_no_branch_of_others(self, condition: str) -> None:
        findings = found(self.BARRIER, f"{DDP}if {condition}:\n    dist.barrier()\n{self.LONE}")
        assert lines(findings) == [17]

    @pytest.mark.parametrize("condition", ["args.lora_rank == 0", "args.low_rank == 0", "cfg.frank == 0"])
    def test_another_kind_of_rank_lets_all_through(self, condition: str) -> None:
        assert found(self.BARRIER, f"{DDP}if {condition}:\n    dist.barrier()\n") == []

    @pytest.mark.parametrize("condition", ["http_rank == 0", "step_rank == 0"])
    def test_letters_of_another_word_name_no_part_of_the_world(self, condition: str) -> None:
        assert lines(found(self.BARRIER, f"{DDP}if {condition}:\n    dist.barrier()\n")) == [14]

    SAVED = "checkpoint-written-by-every-rank"

    @pytest.mark.parametrize(
        "condition",
        ['args.domain == "code"', "cfg.rerank", "args.maintain", "local_loss < best", "'zero' in args.mode"],
    )
    def test_a_checkpoint_under_another_condition_is_written_by_all(self, condition: str) -> None:
        assert lines(found(self.SAVED, f'{DDP}if {condition}:\n    torch.save(model.state_dict(), "model.pt")\n')) == [
            14
        ]

    @pytest.mark.parametrize(
        "path", ["'rerank/model.pt'", "'rank.pt'", "args.reranker", "os.path.join(frankfurt, 'm.pt')"]
    )
    def test_a_path_without_the_rank_is_the_same_on_all(self, path: str) -> None:
        assert lines(found(self.SAVED, f"{DDP}torch.save(model.state_dict(), {path})\n")) == [13]

    @pytest.mark.parametrize(
        "path", ["f'{local_rank}.pt'", "f'{dist.get_rank()}.pt'", "name", "'%s.pt' % os.environ['RANK']"]
    )
    def test_a_path_with_the_rank_differs(self, path: str) -> None:
        script = f"{DDP}name = f'{{local_rank}}.pt'\ntorch.save(model.state_dict(), {path})\n"
        assert found(self.SAVED, script) == []


class TestHowSure:
    """``check/certainty.py``: a finding under a condition stays certain only where that surely holds."""

    HAZARD = "collective-in-branch-of-one-rank"

    def certainty(self, condition: str, launch: str = LAUNCH, **config: object) -> Certainty:
        script = f"{DDP}for step in range(9):\n    if {condition}:\n        if local_rank == 0:\n"
        script += "            dist.barrier()\n"
        (finding,) = found(self.HAZARD, script, launch, **config)
        return finding.certainty

    @pytest.mark.parametrize(
        "condition",
        [
            "cfg.rerank",
            "cfg.resort",
            "cfg.webmaster",
            'cfg.kind == "rank"',
            "not cfg.rerank",
            "not (local_rank == 9 or cfg.resort)",
            "cfg.lora_rank > 8",
            'args.criterion == "mse"',
            'cfg.stepwise == "yes"',
            "args.max_steps > 9",
            'args.mode == "epoch"',
        ],
    )
    def test_an_open_condition_leaves_it_likely(self, condition: str) -> None:
        assert self.certainty(condition) is Certainty.LIKELY

    @pytest.mark.parametrize(
        "condition",
        [
            "dist.is_initialized()",
            "world_size > 1",
            "dist.get_world_size() > 1",
            "accelerator.is_main_process",
            "self.args.should_save",
            "step % 10 == 0",
            "global_step > args.warmup_steps",
            "epoch == 3 and local_rank < 4",
            "not (local_rank == 9 and cfg.resort)",
            '__name__ == "__main__"',
        ],
    )
    def test_a_condition_that_some_rank_passes_some_time_leaves_it_certain(self, condition: str) -> None:
        assert self.certainty(condition) is Certainty.CERTAIN

    @pytest.mark.parametrize(
        ("condition", "certainty"),
        [
            ("args.use_deepspeed", Certainty.CERTAIN),
            ('args.engine == "deepspeed"', Certainty.CERTAIN),
            ('args.engine != "deepspeed"', Certainty.POSSIBLE),
            ("not args.use_deepspeed", Certainty.POSSIBLE),
            ("args.plan is not None", Certainty.LIKELY),
            ("args.nodeepspeedy", Certainty.LIKELY),
        ],
    )
    def test_deepspeed_is_on_where_the_launch_says_so(self, condition: str, certainty: Certainty) -> None:
        assert self.certainty(condition, DEEPSPEED, train_micro_batch_size_per_gpu=1) is certainty


class TestOtherJudgements:
    """One judgement of a hazard each."""

    @pytest.mark.parametrize(
        ("before", "count"),
        [
            ("", 1),
            ("    model.backward_hook = async_op\n", 1),
            ("    scheduler = ReduceLROnPlateau(optimizer)\n", 1),
            ("    chosen = logits.gather(1, labels)\n", 1),
            ("    message = 'all_reduce later'\n", 1),
            ("    flag = agree(loss)\n", 1),
            ("    dist.all_reduce(bad)\n", 0),
            ("    seen = accelerator.gather(loss)\n", 0),
            ("    if accelerator.check_trigger():\n        pass\n", 0),
            ("    sync_stop(loss)\n", 0),
        ],
    )
    def test_ranks_agree_by_calls(self, before: str, count: int) -> None:
        loop = "for batch in data:\n    loss = model(batch).mean()\n"
        end = "    if torch.isnan(loss):\n        continue\n    loss.backward()\n"
        assert len(found("collective-branch-on-own-loss", f"{DDP}{loop}{before}{end}")) == count

    @pytest.mark.parametrize(
        ("test", "count"),
        [
            ("step % accumulation == 0", 1),
            ("step % args.gradAccSteps == 0", 1),
            ("step % pegasus == 0", 0),
            ("step % 4 == 0", 0),
        ],
    )
    def test_steps_are_accumulated_by_name(self, test: str, count: int) -> None:
        loop = "for step, batch in enumerate(data):\n    engine.backward(engine(batch))\n"
        loop += f"    if {test}:\n        engine.step()\n"
        findings = found(
            "accumulation-applied-twice",
            ENGINE + loop,
            DEEPSPEED,
            train_micro_batch_size_per_gpu=1,
            gradient_accumulation_steps=4,
        )
        assert len(findings) == count

    @pytest.mark.parametrize(
        ("made", "count"),
        [
            ("DistributedSampler(rows, seed=None)", 1),
            ("NoneSampler(rows)", 1),
            ("DistributedSampler(rows) if many else None", 0),
        ],
    )
    def test_a_sampler_may_be_none_where_none_is_a_value_of_it(self, made: str, count: int) -> None:
        script = (
            "from torch.utils.data import DataLoader\nfrom torch.utils.data.distributed import DistributedSampler\n"
            f"from own import NoneSampler\nsampler = {made}\n"
            "loader = DataLoader(rows, shuffle=True, sampler=sampler)\n"
        )
        assert len(found("data-loader-shuffle-with-sampler", script)) == count

    @pytest.mark.parametrize(
        ("loop", "made", "count"),
        [
            ("data", "model(batch).mean()", 1),
            ("accumulator_of(data)", "model(batch).mean()", 1),
            ("accum_steps", "model(batch).mean()", 0),
            ("microBatches", "model(batch).mean()", 0),
            ("data", "criterion(model(batch), batch.data_labels)", 1),
            ("data", "criterion(model(batch), teacher(batch).detach())", 1),
            ("data", "to_float(model(batch))", 1),
            ("data", "-model(batch).gather(1, labels).mean()", 1),
            ("data", "model(batch).mean().item()", 0),
            ("data", "accelerator.gather(loss).mean()", 0),
            ("data", "float(model(batch).mean()) / 2", 0),
        ],
    )
    def test_a_loss_without_history(self, loop: str, made: str, count: int) -> None:
        body = f"total = 0\nfor batch in {loop}:\n    loss = {made}\n    loss.backward()\n    total += loss\n"
        assert len(found("loop-loss-kept-with-its-graph", f"{DDP}{body}")) == count

    @pytest.mark.parametrize(
        ("test", "severity"),
        [
            ("tokenizer.pad_token is None", "warning"),
            ("tokenizer.pad_token_id is None", "warning"),
            ('__name__ == "__main__"', "warning"),
            ('args.tokens == "pad_token"', "note"),
            ("args.unpad_tokens", "note"),
            ("args.add_pad_token", "note"),
        ],
    )
    def test_new_rows_are_written_in_the_usual_case(self, test: str, severity: str) -> None:
        script = f"""\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

args = TrainingArguments(output_dir="out", deepspeed="ds.json")
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")


def grow():
    model.resize_token_embeddings(99)
    weight = model.get_input_embeddings().weight
    weight[-1] = weight[:-1].mean(0)


if {test}:
    grow()
Trainer(model=model, args=args).train()
"""
        config = {"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 1}
        findings = found("zero3-resize-embeddings", script, "deepspeed --num_gpus 2 train.py\n", **config)
        assert [one.severity.value for one in findings] == [severity]

    @pytest.mark.parametrize(
        ("moved", "count"),
        [
            ("torch.from_numpy(self.rows[index]).cuda()", 1),
            ("self.torchvision_rows.cuda()", 1),
            ("torch.cuda(index)", 0),
        ],
    )
    def test_a_move_to_the_gpu(self, moved: str, count: int) -> None:
        script = f"""\
import torch
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __getitem__(self, index):
        return {moved}


loader = DataLoader(Rows(), num_workers=4)
"""
        assert len(found("data-loader-workers-use-cuda", script)) == count

    @pytest.mark.parametrize(
        ("test", "certainty"),
        [
            ("args.save", Certainty.LIKELY),
            ("self.training_args.save", Certainty.LIKELY),
            ('config["save"]', Certainty.LIKELY),
            ("args.lora_rank > 8", Certainty.LIKELY),
            ("step % 10 == 0", Certainty.CERTAIN),
        ],
    )
    def test_an_option_decides(self, test: str, certainty: Certainty) -> None:
        script = f"{ENGINE}for step in range(9):\n    if {test}:\n        if dist.get_rank() == 0:\n"
        script += "            engine.save_checkpoint('out')\n"
        config = {"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 1}
        findings = found("ds-checkpoint-saved-on-one-rank", script, DEEPSPEED, **config)
        assert [one.certainty for one in findings] == [certainty]

    @pytest.mark.parametrize(
        ("test", "count"),
        [
            ("args.zero_stage != 3", 0),
            ('config["zero_optimization"]["stage"] != 3', 0),
            ("not is_deepspeed_zero3_enabled()", 0),
            ("args.stage < 3", 0),
            ('args.stage == "sft"', 1),
            ("args.backstage", 1),
            ('args.theme == "backstage"', 1),
            ("args.nozero3ish", 1),
        ],
    )
    def test_the_stage_is_tested(self, test: str, count: int) -> None:
        script = f"{ENGINE}if {test}:\n    torch.nn.utils.clip_grad_norm_(engine.parameters(), 1.0)\n"
        config = {"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 1}
        assert len(found("zero-clip-grad-norm-of-torch", script, DEEPSPEED, **config)) == count

    @pytest.mark.parametrize(
        ("work", "count"),
        [
            ("if dist.get_rank() == 0:", 1),
            ("if is_main_process():", 1),
            ("if args.is_maintained:", 0),
            ("if args.rerank == 0:", 0),
            ("if not dist.get_rank() == 0:", 0),
            ("if args.rank_by and args.size == 0:", 0),
        ],
    )
    def test_one_rank_prepares_the_data(self, work: str, count: int) -> None:
        script = (
            "from datetime import timedelta\n\nimport torch.distributed as dist\nfrom datasets import load_dataset\n\n"
            'dist.init_process_group("nccl", timeout=timedelta(seconds=120))\n'
            f'{work}\n    rows = load_dataset("json", data_files="rows.jsonl")\ndist.barrier()\n'
        )
        assert len(found("nccl-timeout-preprocessing", script)) == count

    @pytest.mark.parametrize(
        ("name", "count"), [("ref_model", 1), ("teacher", 1), ("refined_model", 0), ("referrals", 0), ("judgement", 0)]
    )
    def test_a_model_that_is_only_evaluated(self, name: str, count: int) -> None:
        script = f"""\
from accelerate import Accelerator
from transformers import AutoModelForCausalLM

accelerator = Accelerator()
{name} = AutoModelForCausalLM.from_pretrained("gpt2")
{name} = accelerator.prepare({name})
"""
        Path("accelerate.yaml").write_text(
            "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
        )
        launch = "accelerate launch --config_file accelerate.yaml train.py\n"
        config = {"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 1}
        assert len(found("ds-eval-model-needs-no-optimizer", script, launch, **config)) == count

    @pytest.mark.parametrize(
        ("data", "count"),
        [
            ("Rows('train.pt')", 1),
            ("Rows('rank/train.pt')", 1),
            ("Rows(crank)", 1),
            ("Rows(reranked=True)", 1),
            ("Rows(rank=local_rank)", 0),
            ("Rows(dist.get_world_size())", 0),
            ("Rows(os.environ['RANK'])", 0),
        ],
    )
    def test_a_data_set_knows_of_ranks(self, data: str, count: int) -> None:
        script = f"{DDP}from torch.utils.data import DataLoader\nfrom own import Rows\n\nrows = {data}\n"
        script += "loader = DataLoader(rows, batch_size=8, shuffle=True)\n"
        assert len(found("data-same-on-every-rank", script)) == count

    @pytest.mark.parametrize(
        ("body", "count"),
        [
            ("yield from self.files[self.rank :: 2]", 1),
            ("yield from self.files[dist.get_rank() :: 2]", 1),
            ("yield from self.reranked", 0),
            ("yield from self.files  # a rank's own", 0),
            ("yield from self.files[self.rank :: 2]  # no cycle, no repeat", 1),
            ("yield from self.files[self.rank :: self.bicycles]", 1),
            ("yield from itertools.cycle(self.files[self.rank :: 2])", 0),
            ("while True:\n            yield self.files[self.rank]", 0),
        ],
    )
    def test_a_stream_that_is_split_by_rank_and_ends(self, body: str, count: int) -> None:
        script = f"{DDP}from torch.utils.data import IterableDataset\n\n\nclass Shards(IterableDataset):\n"
        script += f"    def __iter__(self):\n        {body}\n"
        assert len(found("uneven-data-per-rank-hang", script)) == count

    @pytest.mark.parametrize(
        ("labels", "pad", "count"),
        [
            ('[row["labels"] for row in rows]', "tokenizer.pad_token_id", 1),
            ("labels", "self.pad_id", 1),
            ("[row.relabelled for row in rows]", "tokenizer.pad_token_id", 0),
            ("unlabelled", "tokenizer.pad_token_id", 0),
            ("labels", "tokenizer.nopad_id", 0),
        ],
    )
    def test_labels_that_are_padded(self, labels: str, pad: str, count: int) -> None:
        script = "from torch.nn.utils.rnn import pad_sequence\n\n\ndef collate(self, rows, labels, tokenizer):\n"
        script += f"    return pad_sequence({labels}, padding_value={pad})\n"
        assert len(found("data-padded-labels-in-loss", script)) == count

    @pytest.mark.parametrize(
        ("line", "count"), [("", 1), ("# moved: labels.to(device)", 1), ("labels = labels.to(logits.device)", 0)]
    )
    def test_labels_that_are_moved(self, line: str, count: int) -> None:
        script = f"""\
from torch import nn
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


class Weighted(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False):
        labels = inputs["labels"]
        logits = model(**inputs).logits
        {line}
        return nn.CrossEntropyLoss()(logits.flatten(0, 1), labels.flatten())


model = AutoModelForCausalLM.from_pretrained("/models/Qwen2.5-14B", device_map="auto")
Weighted(model, TrainingArguments("out"), train_dataset=rows()).train()
"""
        launch = "CUDA_VISIBLE_DEVICES=0,1,2,3 python train.py\n"
        assert len(found("device-map-auto-trainer-mismatch", script, launch)) == count

    @pytest.mark.parametrize(
        ("line", "count"), [("pass", 1), ("pass  # no cuda here", 1), ("self.cuda()", 0), ("self.where = 'cuda:0'", 0)]
    )
    def test_a_model_that_moves_itself(self, line: str, count: int) -> None:
        script = (
            f"{DDP}\n\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        {line}\n\n\n"
        )
        script += "net = Net()\nwrapped = DistributedDataParallel(net, device_ids=[local_rank])\n"
        assert len(found("ddp-module-on-cpu", script)) == count

    @pytest.mark.parametrize(
        ("given", "count"),
        [
            ("args.resume_from_checkpoint", 1),
            ("self.training_args.resume_from_checkpoint", 1),
            ("targs.resume_from_checkpoint", 0),
        ],
    )
    def test_the_argument_is_handed_on(self, given: str, count: int) -> None:
        script = (
            "from transformers import HfArgumentParser, Trainer, TrainingArguments\n\n"
            "(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
            f"Trainer(model, args, train_dataset=rows()).train(resume_from_checkpoint={given})\n"
        )
        launch = "torchrun --nproc_per_node 4 train.py --output_dir out --resume_from_checkpoint True\n"
        assert len(found("checkpoint-resume-true-as-text", script, launch)) == count

    def test_a_model_is_the_same_however_it_is_written(self) -> None:
        script = (
            "from torch.distributed.fsdp import fully_shard\n\nfully_shard(self.model)\n"
            "(\n    self\n    .model\n).generate(ids)\nself.model_of_others.generate(ids)\n"
        )
        assert lines(found("fsdp2-method-outside-forward", script)) == [4]

    @pytest.mark.parametrize(
        ("iterated", "is_found"), [("self.players", True), ("self.experts", True), ("self.decoder_layers", False)]
    )
    def test_a_loop_over_layers_is_run_by_all(self, iterated: str, is_found: bool) -> None:
        Path("net.py").write_text(
            "class Block(Module):\n    def forward(self, x):\n"
            f"        for part in {iterated}:\n            x = part(x)\n        return x\n"
        )
        run = SimpleNamespace(scripts=())
        frame = Frame(str(Path("net.py").resolve()), 4, "forward", "x = part(x)", "user")
        assert leaf_modules._class_with_looping_forward(cast("Run", run), frame) == ("Block" if is_found else None)

    def test_a_program_s_guard_is_its_name(self) -> None:
        example = "if __name__ == '__main__':\n    load()\nif model.__name__ == 'Net':\n    load()\n"
        script = read_script(SourceFile("a.py", example.encode()))
        assert [named_inputs._is_under_main_guard(script, node) for node in script.nodes(ast.Call)] == [True, False]
