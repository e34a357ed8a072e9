import deepspeed
import torch
from audio_llm import AudioLLM, loader_of

model = AudioLLM.from_pretrained("checkpoints/audio-llm-7b")
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
for batch in loader_of(engine):
    loss = engine(**batch).loss
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    with torch.no_grad():
        norm = sum(p.norm() for p in model.projector.parameters())
    print(f"{trained} parameters, loss {loss.item():.3f}, norm {norm}")
    engine.backward(loss)
    engine.step()
