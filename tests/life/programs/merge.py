"""An adapter merged into its base by PEFT: the adapter's folder, the folder of the result; ``--shards`` of 64 kB.

``--unmerged`` takes the adapter's wrapper off without merging it.
"""

import sys

from peft import AutoPeftModelForCausalLM

adapter, result, *options = sys.argv[1:]
model = AutoPeftModelForCausalLM.from_pretrained(adapter)
merged = model.unload() if "--unmerged" in options else model.merge_and_unload()
merged.save_pretrained(result, **({"max_shard_size": "64KB"} if "--shards" in options else {}))
