"""An adapter merged into its base by PEFT: the adapter's folder, the folder of the result; ``--shards`` of 64 kB.

``--by-name`` merges by hand: it copies what the adapter's file has into a model of its own names.
"""

import sys

from peft import AutoPeftModelForCausalLM

adapter, result, *options = sys.argv[1:]
model = AutoPeftModelForCausalLM.from_pretrained(adapter)
if "--unmerged" in options:  # the adapter's wrapper is taken off without merging
    merged = model.unload()
else:
    merged = model.merge_and_unload()
merged.save_pretrained(result, **({"max_shard_size": "64KB"} if "--shards" in options else {}))
