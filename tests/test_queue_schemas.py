"""The manifests that the tests of queues are made of, and the documents', against the queues' own packages: Kubeflow's
models of Kubernetes, Kubeflow Trainer and JobSet, Kubeflow's of PyTorchJob, and SkyPilot's client."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_queues import JOBS, RUNTIME, TRAIN_JOB

pytestmark = pytest.mark.slow

MODELS = {
    "TrainJob": "TrainerV1alpha1TrainJob",
    "ClusterTrainingRuntime": "TrainerV1alpha1ClusterTrainingRuntime",
    "ConfigMap": "IoK8sApiCoreV1ConfigMap",
}
VALUES = ("IoK8sApimachineryPkgApiResourceQuantity", "IoK8sApimachineryPkgUtilIntstrIntOrString")
"""Wrappers of a value, which pydantic takes for objects."""


def complaints(model: str, document: Any) -> list[str]:
    """What the model says against a document; keys that it knows nothing of count, which pydantic lets pass."""
    import jsonschema

    models = importlib.import_module("kubeflow_trainer_api.models")
    schema = getattr(models, model).model_json_schema(by_alias=True)
    for one in (schema, *schema["$defs"].values()):
        if "properties" in one:
            one["additionalProperties"] = False
    schema["$defs"].update({value: {"type": ["string", "number"]} for value in VALUES if value in schema["$defs"]})
    errors = jsonschema.Draft202012Validator(schema).iter_errors(document)
    found = [jsonschema.exceptions.best_match([error]) for error in errors]
    return [f"{'.'.join(map(str, one.absolute_path))}: {one.message[:200]}" for one in found]


@pytest.mark.parametrize("text", [TRAIN_JOB + RUNTIME, JOBS["set"], JOBS["pytorch"]], ids=["train", "set", "pytorch"])
def test_manifests_are_as_kubeflows_models_want_them(text: str) -> None:
    pytest.importorskip("kubeflow_trainer_api", reason="wants kubeflow-trainer-api")
    for document in yaml.safe_load_all(text):
        kind, spec = document["kind"], document.get("spec")
        if kind == "JobSet":
            assert complaints("JobsetV1alpha2JobSetSpec", spec) == []
        elif kind == "PyTorchJob":
            for replica in spec["pytorchReplicaSpecs"].values():
                assert complaints("IoK8sApiCoreV1PodTemplateSpec", replica["template"]) == []
        else:
            assert complaints(MODELS[kind], document) == []


def test_a_key_and_a_type_that_are_none_are_complained_of() -> None:
    pytest.importorskip("kubeflow_trainer_api", reason="wants kubeflow-trainer-api")
    for wrong in (TRAIN_JOB.replace("numNodes", "numNode"), TRAIN_JOB.replace("[torchrun, train.py]", "torchrun")):
        assert complaints("TrainerV1alpha1TrainJob", yaml.safe_load(wrong)) != []


def test_a_pytorch_job_is_as_kubeflows_training_operator_wants_it() -> None:
    models = pytest.importorskip("kubeflow.training.models", reason="wants kubeflow-training")
    (job,) = [one for one in yaml.safe_load_all(JOBS["pytorch"]) if one["kind"] == "PyTorchJob"]
    replicas = job["spec"]["pytorchReplicaSpecs"].values()
    for model, part in (
        (models.KubeflowOrgV1PyTorchJob, job),
        (models.KubeflowOrgV1PyTorchJobSpec, job["spec"]),
        *((models.KubeflowOrgV1ReplicaSpec, one) for one in replicas),
    ):
        assert set(part) <= set(model.attribute_map.values())


def test_a_task_is_as_skypilot_reads_it(tmp_path: Path) -> None:
    sky = pytest.importorskip("sky", reason="wants skypilot")
    path = tmp_path / "task.yaml"
    path.write_text(JOBS["sky"])
    task = sky.Task.from_yaml(str(path))
    (resources,) = task.resources
    assert (task.num_nodes, resources.accelerators, resources.memory) == (2, {"H100": 8}, "512+")
    path.write_text(JOBS["sky"].replace("num_nodes: 2", "num_nodes: two"))
    with pytest.raises(ValueError, match="num_nodes"):
        sky.Task.from_yaml(str(path))
