"""Every hazard against its fixtures: ``tests/hazards/<name>/{bad,good}*.record.json``, found by glob.

A bad fixture's best finding is the hazard's; ``bad_fallback…`` and ``bad_warning…`` say by their name that another may
stand before it, or what it is. A good fixture looks alike, and the hazard claims nothing in it. ``…_rehearsed…`` are
records of real rehearsals, shortened; the others were written after the pattern.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from snapshots import cases_of, name_of

from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.finding import Certainty, Finding, Severity, Text
from gonogo.hazards.hazard import Hazard
from gonogo.hazards.index import all_hazards
from gonogo.hazards.page import HEADINGS
from gonogo.judge.rehearsal_findings import findings_in_rehearsal

FIXTURES = Path(__file__).parent / "hazards"
HAZARDS = {hazard.name: hazard for hazard in all_hazards()}
BAD = sorted(FIXTURES.glob("*/bad*.record.json"))
GOOD = sorted(FIXTURES.glob("*/good*.record.json"))
HAN = re.compile("[\u4e00-\u9fff]")


def case(path: Path) -> str:
    return f"{path.parent.name}/{path.name.removesuffix('.record.json')}"


def record_of(path: Path) -> RehearsalRecord:
    return msgspec.json.decode(path.read_bytes(), type=RehearsalRecord)


def found(name: str, case: str) -> tuple[Finding, ...]:
    return findings_in_rehearsal(record_of(FIXTURES / name / f"{case}.record.json"))


def headings(page: str) -> list[str]:
    return [line.strip().removeprefix("## ") for line in page.splitlines() if line.strip().startswith("## ")]


@pytest.mark.parametrize("path", BAD, ids=case)
def test_a_bad_case_is_found(path: Path) -> None:
    name = path.parent.name
    findings = findings_in_rehearsal(record_of(path))
    assert [f.hazard for f in findings].count(name) == 1
    if not path.name.startswith(("bad_fallback", "bad_warning", "bad_note")):
        assert findings[0].hazard == name
        wanted = Certainty.LIKELY if path.name.startswith("bad_likely") else Certainty.CERTAIN
        assert (findings[0].severity, findings[0].certainty) == (Severity.ERROR, wanted)
    finding = next(f for f in findings if f.hazard == name)
    assert finding.ranks
    assert finding.sources == HAZARDS[name].sources
    assert_readable(finding)


@pytest.mark.parametrize("path", GOOD, ids=case)
def test_a_good_case_is_left_alone(path: Path) -> None:
    assert path.parent.name not in [f.hazard for f in findings_in_rehearsal(record_of(path))]


def assert_readable(finding: Finding) -> None:
    """Both languages say it, and no placeholder or missing value shows."""
    labels = [span.label for span in finding.spans if span.label]
    for text in (finding.title, finding.cause, *finding.cure, *labels):
        assert isinstance(text, Text)
        assert text.en.strip()
        assert HAN.search(text.zh), text.zh
        for sentence in (text.en, text.zh):
            assert not re.search(r"\{[a-z_]+\}|\bNone\b|Text\(|Ellipsis", sentence), sentence
            assert "  " not in sentence


@pytest.mark.parametrize("name", sorted(HAZARDS))
def test_a_hazard_is_whole(name: str) -> None:
    hazard = HAZARDS[name]
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)
    for kind in ("bad", "good"):  # records, logs, or small projects
        assert [case for case in cases_of(FIXTURES / name) if name_of(case).startswith(kind)], kind
    assert hazard.sources
    assert all(source.startswith("https://") for source in hazard.sources)
    assert HAN.search(hazard.title.zh)


@pytest.mark.parametrize("name", sorted(HAZARDS))
def test_file_class_and_hazard_have_one_name(name: str) -> None:
    hazard = HAZARDS[name]
    assert hazard.page.file.endswith(f"/{name.replace('-', '_')}.md")
    if hazard.page.has_code:
        assert type(hazard).__module__ == hazard.page.module
        assert type(hazard).__name__ == "".join(part[:1].upper() + part[1:] for part in name.split("-"))


@pytest.mark.parametrize("name", sorted(HAZARDS))
def test_both_pages_stand_under_the_fixed_headings(name: str) -> None:
    hazard = HAZARDS[name]
    for language in ("en", "zh"):
        page = hazard.page.text(language)
        assert headings(page) == [heading.in_language(language) for heading in HEADINGS]
        assert page.splitlines()[0].strip()
        assert re.findall(r"^- (https://[^\s：]+?)[:：]", page, re.MULTILINE) == list(hazard.sources)


def test_no_page_is_left_as_it_was_begun() -> None:
    """`gonogo hazards --new` writes TODO, and 待写, where something is to be written."""
    left = [hazard.name for hazard in HAZARDS.values() if re.search(r"\bTODO\b|待写", str(hazard.page))]
    assert left == []


def test_every_folder_of_fixtures_is_a_hazards() -> None:
    assert {path.name for path in FIXTURES.iterdir() if path.is_dir()} == set(HAZARDS)


def test_names_are_taken_once() -> None:
    assert len(HAZARDS) == len(all_hazards())


def test_hazards_import_nothing_heavy() -> None:
    """How long it takes to find them all, `benchmarks/check.py` measures; a test would fail on a busy machine."""
    program = (
        "import sys\n"
        "from gonogo.hazards.index import all_hazards\n"
        "all_hazards()\n"
        "heavy = {'torch', 'deepspeed', 'transformers', 'numpy', 're2', 'yaml', 'tree_sitter', 'rich', 'typer'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


class TestPlaces:
    """The primary span is where the cure is to be made."""

    @pytest.mark.parametrize(
        ("name", "case", "path", "line"),
        [
            ("zero3-offload-clip-grad-device-regression", "bad", "deepspeed/runtime/zero/stage3.py", 2117),
            ("zero3-direct-param-use-invalid-gradient", "bad", "finetune/model.py", 57),
            ("zero3-direct-param-use-invalid-gradient", "bad_without_origin", "finetune/train.py", 96),
            ("zero3-low-cpu-mem-device-map", "bad", "finetune/train.py", 61),
            ("device-map-auto-distributed", "bad_refused_by_accelerate", "finetune/finetune.py", 88),
            ("device-map-auto-distributed", "bad_crossed_in_the_embedding", "finetune/finetune.py", 88),
            ("device-mismatch-multimodal-submodule", "bad", "finetune/train.py", 103),
            ("device-mismatch", "bad_fallback_input_not_moved", "finetune/train.py", 96),
            ("zero3-offload-clip-grad-device-regression", "bad_rehearsed_minicpmv", "runtime/zero/stage3.py", 2117),
            ("zero3-direct-param-use-invalid-gradient", "bad_rehearsed_slam_omni", "train.py", 53),
            ("device-mismatch-multimodal-submodule", "bad_rehearsed_qwen_omni", "train.py", 110),
            ("device-map-auto-distributed", "bad_rehearsed_qwen_7b", "finetune.py", 66),
            ("gpu-oom-model-states", "bad", "finetune/train.py", 96),
            ("program-raises", "bad_fallback", "finetune/trainer.py", 71),
        ],
    )
    def test_primary_span(self, name: str, case: str, path: str, line: int) -> None:
        primary = found(name, case)[0].spans[0]
        assert primary.path.endswith(path)
        assert primary.line == line

    def test_the_regression_names_the_users_line_second(self) -> None:
        spans = found("zero3-offload-clip-grad-device-regression", "bad")[0].spans
        assert spans[1].path.endswith("finetune/train.py")


class TestWhatIsSaid:
    def test_ranks_that_fall_at_one_place_are_one_finding(self) -> None:
        assert found("zero3-offload-clip-grad-device-regression", "bad")[0].ranks == (0, 3)
        assert found("gpu-oom-model-states", "bad")[0].ranks == (0, 3)
        assert found("program-raises", "bad_fallback")[0].ranks == (0, 1)

    def test_the_regression_names_versions(self) -> None:
        finding = found("zero3-offload-clip-grad-device-regression", "bad")[0]
        assert "0.14.2" in finding.cause.en
        assert "deepspeed>=0.14.3" in finding.cure[0].en
        assert "deepspeed>=0.14.3" in finding.cure[0].zh

    def test_the_submodule_is_named(self) -> None:
        finding = found("device-mismatch-multimodal-submodule", "bad")[0]
        assert "Qwen2_5OmniToken2WavModel" in finding.cause.en
        assert found("device-mismatch-multimodal-submodule", "bad_only_frames_tell")[0].module == (
            "code2wav_bigvgan_model"
        )
        assert "ENABLE_AUDIO_OUTPUT=0" in finding.cure[0].en
        hears = found("device-mismatch-multimodal-submodule", "bad_in_the_audio_towers_forward")[0]
        assert hears.module == "thinker.audio_tower"
        assert not any("ENABLE_AUDIO_OUTPUT" in text.en for text in hears.cure)  # it would not leave this part out

    def test_the_parameter_is_named(self) -> None:
        finding = found("zero3-direct-param-use-invalid-gradient", "bad")[0]
        assert finding.parameter == "group_decode_adapter.linear.bias"
        assert "[12480]" in finding.cause.en

    def test_a_general_mismatch_says_operator_operands_and_what_to_do(self) -> None:
        buffer = found("device-mismatch", "bad_fallback_buffer_in_remote_code")[0]
        assert "aten.add.Tensor" in buffer.cause.en
        assert "other [64, 4096] bfloat16 on cpu (resampler.pos_embed)" in buffer.cause.en
        assert buffer.parameter == "resampler.pos_embed"
        assert "resampler.pos_embed" in buffer.cure[0].en
        moved = found("device-mismatch", "bad_fallback_input_not_moved")[0]
        assert "model.device" in moved.cure[0].en

    def test_a_batch_size_that_would_be_right_is_given(self) -> None:
        right = found("ds-batch-size-world-size-mismatch", "bad")[0]
        assert "256 (= 4 * 8 * 8)" in right.cure[0].en
        early = found("ds-batch-size-world-size-mismatch", "bad_world_size_of_one_seen")[0]
        assert "sees 1 process(es) of 2" in early.cure[0].en

    def test_all_mismatches_are_listed(self) -> None:
        finding = found("ds-config-hf-args-mismatch", "bad")[0]
        assert "train_batch_size, optimizer.params.lr, optimizer.params.betas" in finding.cure[0].en
        assert "optimizer.params.betas=[0.8, 0.89] / adam_beta1+adam_beta2=[0.9, 0.99]" in finding.cause.en

    def test_layers_are_folded(self) -> None:
        finding = found("unused-parameters", "bad_warning")[0]
        assert "audio_tower.layers.*.fc1.weight (32)" in finding.cause.en


class TestGpuMemory:
    def test_the_numbers_are_printed(self) -> None:
        finding = found("gpu-oom-model-states", "bad")[0]
        assert (
            finding.title.en
            == "Out of GPU memory (model states): the run needs 155.9 GiB, but an H100-80G has 79.6 GiB"
        )
        assert "优化器 101.5 GiB" in finding.cause.zh
        for number in (
            "optimizer 101.5 GiB",
            "78.4 GiB (79.6 GiB less 1.2 GiB",
            "requests 2.1 GiB",
            "lm_head (2.4 GiB)",
        ):
            assert number in finding.cause.en

    def test_remedies_that_are_enough_come_first(self) -> None:
        cure = [text.en for text in found("gpu-oom-model-states", "bad")[0].cure]
        assert "offload_optimizer.device: cpu" in cure[0]
        assert "frees 101.5 GiB per GPU, which is enough" in cure[0]
        # 136.6 GiB of divided states on 8 ranks, beside 19.3 GiB that stay: 136.6 * 8 / 59.1 is 18.5, in nodes of 8: 24
        assert any("Use 24 GPUs instead of 8" in text and "enough" in text for text in cure)
        assert "would still be missing" in cure[-1]

    def test_what_stops_while_loading_needs_what_it_held_and_asked_for(self) -> None:
        finding = found("gpu-oom-model-states", "bad_stopped_while_loading")[0]
        assert "the run needs at least 79.1 GiB, but an H100-80G has 79.6 GiB, 1.2 GiB of it taken" in finding.title.en
        assert "ZeRO-3" in finding.cure[0].en
        assert not any("LoRA" in text.en for text in finding.cure)  # there is no gradient and no optimizer to save

    def test_activations_are_cut_by_the_micro_batch(self) -> None:
        cure = [text.en for text in found("gpu-oom-activations", "bad")[0].cure]
        # 84.2 GiB of activations for a micro-batch of 4 beside 20.8 GiB: 57.6 GiB are left, room for 2
        assert any(
            "Micro-batch 2 instead of 4" in text and "frees 42.1 GiB per GPU, which is enough" in text for text in cure
        )
        assert any("68 % of the present length" in text for text in cure)

    def test_fragmentation_is_told_from_need(self) -> None:
        finding = found("gpu-oom-activations", "bad_fragmented")[0]
        assert "76.0 GiB of tensors do not fit into the fragmented 78.4 GiB" in finding.title.en
        assert "would fit" in finding.cause.en
        assert "expandable_segments:True" in finding.cure[0].en


class TestHostMemory:
    def test_a_rank_in_training_speaks_for_its_node(self) -> None:
        finding = found("cpu-ram-oom-killed", "bad")[0]
        assert "a node needs 1,416.0 GiB and has 1,024.0 GiB" in finding.title.en
        assert "320.0 GiB of it pinned" in finding.cause.en
        assert "1 of the node's ranks was rehearsed; the other 7 are assumed to hold 177.0 GiB each" in finding.cause.en

    def test_the_first_rank_alone_proves_nothing_about_saving(self) -> None:
        finding = found("cpu-ram-oom-killed", "bad_warning_likely_first_rank_saves")[0]
        assert (finding.severity, finding.certainty) == (Severity.ERROR, Certainty.LIKELY)
        assert "a node needs 1,070.0 GiB" in finding.title.en  # 300 + 7 * 110, of which 8 * 110 are sure
        assert any("--ranks 0,1" in text.en for text in finding.cure)

    def test_ranks_not_run_are_like_the_others_and_not_like_the_first(self) -> None:
        finding = found("cpu-ram-oom-killed", "bad_two_ranks_run")[0]
        assert "a node needs 1,280.0 GiB" in finding.title.en  # 300 + 7 * 140

    def test_a_node_that_is_nearly_full_is_a_warning(self) -> None:
        finding = found("cpu-ram-oom-killed", "bad_warning_nearly_full")[0]
        assert (finding.severity, finding.certainty) == (Severity.WARNING, Certainty.POSSIBLE)

    def test_parameters_go_back_to_a_gpu_that_has_room(self) -> None:
        assert any("Keep the parameters on the GPU" in text.en for text in found("cpu-ram-oom-killed", "bad")[0].cure)


class TestFallbacks:
    def test_a_fallback_is_silent_where_another_explains_the_rank(self) -> None:
        assert [f.hazard for f in found("program-raises", "good_explained_by_another")] == [
            "zero3-offload-clip-grad-device-regression"
        ]

    def test_memory_beside_an_exception_does_not_hide_it(self) -> None:
        findings = found("program-raises", "bad_fallback_beside_a_host_shortage")
        assert [f.hazard for f in findings] == ["cpu-ram-oom-killed", "program-raises"]

    def test_what_an_exception_was_raised_from_is_told_and_cured(self) -> None:
        finding = found("program-raises", "bad_fallback_raised_from_another")[0]
        assert "; because of ModuleNotFoundError: No module named 'kernels_of_another_version'" in finding.cause.en
        assert "；起因：ModuleNotFoundError: No module named 'kernels_of_another_version'" in finding.cause.zh
        assert finding.cure[0].en.startswith("Install the module into the environment that the launcher uses")

    def test_an_exception_that_hangs_on_an_assumption_is_not_certain(self) -> None:
        beneath_torch = found("program-raises", "bad_fallback_torch_raises_on_an_assumption")[0]
        assert beneath_torch.certainty is Certainty.LIKELY
        finding = found("program-raises", "bad_fallback_hangs_on_an_assumption")[0]
        assert finding.certainty is Certainty.LIKELY
        assert "aten.isfinite" in finding.cause.en

    @pytest.mark.parametrize("path", [*BAD, *GOOD], ids=case)
    def test_every_failed_rank_is_explained(self, path: Path) -> None:
        record = record_of(path)
        failed = {rank.rank for rank in record.ranks if rank.failure is not None}
        told = {rank for f in findings_in_rehearsal(record) if f.severity is Severity.ERROR for rank in f.ranks}
        if path.name != "good_only_memory_ran_out.record.json":
            assert failed <= told
        assert isinstance(HAZARDS[path.parent.name], Hazard)
