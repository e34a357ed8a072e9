"""An adapter trained on a base, and used: ``train --base=FOLDER …``, ``use ADAPTER [RESULT] --base=FOLDER …``.

``--sequence``: a classifier, whose head is in no file; ``--typed``: with LoRA's ``task_type``; ``--resized``: eight
tokens more; ``--unsaved``: PEFT saves no embeddings; ``--first=FOLDER``: that adapter is merged before; ``--dora``,
``--prompt``: instead of LoRA; ``--4bit``, ``--bf16``: how the base is loaded; ``--seed=N``; ``--auto``: PEFT finds the
base itself; ``--apart``: nothing is merged, the model is called once.
"""

import os
import sys

import torch
import transformers
from peft import (
    AutoPeftModelForCausalLM,
    AutoPeftModelForSequenceClassification,
    LoraConfig,
    PeftModel,
    PromptTuningConfig,
    get_peft_model,
)
from truth import kill_after_save, tell_base

given = {word.partition("=")[0]: word.partition("=")[2] for word in sys.argv[1:] if word.startswith("--")}
what, *folders = [word for word in sys.argv[1:] if not word.startswith("--")]
base = given.get("--base", "base")
transformers.set_seed(int(given.get("--seed", 1)))
device = "cuda" if torch.cuda.is_available() else "cpu"
kind = "SEQ_CLS" if "--sequence" in given else "CAUSAL_LM"


def model_of_base():
    owner = transformers.AutoModelForCausalLM
    options = {"dtype": torch.bfloat16 if "--bf16" in given else torch.float32}
    if "--sequence" in given:
        owner, options = transformers.AutoModelForSequenceClassification, {**options, "num_labels": 3}
    if "--4bit" in given:
        options["quantization_config"] = transformers.BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32
        )
        options["device_map"] = {"": device}
    model = owner.from_pretrained(base, **options)
    if "--resized" in given:
        model.resize_token_embeddings(208)
    if "--first" in given:
        model = PeftModel.from_pretrained(model, given["--first"]).merge_and_unload()
    model.config.pad_token_id = 0
    return model


def adapter_config():
    if "--prompt" in given:
        return PromptTuningConfig(task_type=kind, num_virtual_tokens=4)
    return LoraConfig(
        target_modules=["q_proj", "v_proj"], task_type=kind if kind == "CAUSAL_LM" or "--typed" in given else None,
        use_dora="--dora" in given,
    )  # fmt: skip


def train():
    resumes = os.path.exists("out/adapter_model.safetensors")
    model = model_of_base()
    model = (
        PeftModel.from_pretrained(model, "out", is_trainable=True)
        if resumes
        else get_peft_model(model, adapter_config())
    )
    model.to(device)
    tell_base(model, "after" if resumes else "before")
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=1e-2)
    if resumes:
        optimizer.load_state_dict(torch.load("out/optimizer.pt", map_location=device))
    rows = torch.randint(0, 200, (16, 2, 8), generator=torch.Generator().manual_seed(3)).to(device)
    for step, row in enumerate(rows, 1):
        labels = row[:, 0] % 3 if "--sequence" in given else row
        model(input_ids=row, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 2 and not resumes:
            model.save_pretrained("out", **({"save_embedding_layers": False} if "--unsaved" in given else {}))
            torch.save(optimizer.state_dict(), "out/optimizer.pt")
            kill_after_save()
        if step == 4:
            break


def use():
    adapter, *results = folders
    if "--auto" in given:
        owner = AutoPeftModelForSequenceClassification if "--sequence" in given else AutoPeftModelForCausalLM
        model = owner.from_pretrained(adapter, **({"num_labels": 3} if "--sequence" in given else {}))
    else:
        model = PeftModel.from_pretrained(model_of_base(), adapter)
    tell_base(model, "after")
    if "--apart" in given:
        model.to(device).eval()
        with torch.no_grad():
            model(input_ids=torch.arange(8, device=device).reshape(1, 8))
    for result in results:
        model.merge_and_unload().save_pretrained(result)


train() if what == "train" else use()
