import deepspeed
import torch
from audio_llm import AudioLLM, loader_of

model = AudioLLM.from_pretrained("checkpoints/audio-llm-7b")
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
for batch in loader_of(engine):
    loss = engine(**batch).loss
    if engine.zero_optimization_stage() < 3:
        loss = loss + 0.0 * sum(p.sum() for p in model.projector.parameters())
    engine.backward(loss)
    engine.step()
