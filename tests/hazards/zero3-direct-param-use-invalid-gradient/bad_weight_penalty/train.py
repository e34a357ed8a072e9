import deepspeed
import torch
from audio_llm import AudioLLM, loader_of

model = AudioLLM.from_pretrained("checkpoints/audio-llm-7b")
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
for batch in loader_of(engine):
    loss = engine(**batch).loss
    reg = sum(p.pow(2).sum() for p in model.projector.parameters())
    loss = loss + 1e-4 * reg
    engine.backward(loss)
    engine.step()
