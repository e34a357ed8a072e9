"""What transformers really has of a folder: sums of its weights, and names that it did not find there."""

import json
import sys

import transformers
from truth import _sum

folder, told = sys.argv[1:]
with open(f"{folder}/config.json", encoding="utf-8") as file:
    (name,) = json.load(file)["architectures"]
model, info = getattr(transformers, name).from_pretrained(folder, output_loading_info=True)
with open(told, "w", encoding="utf-8") as file:
    sums = {name: _sum(value.float()) for name, value in model.named_parameters()}
    json.dump({"parameters": sums, "missing": sorted(info["missing_keys"])}, file)
