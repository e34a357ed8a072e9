import deepspeed
from model import layers, loss_fn

deepspeed.init_distributed()
net = layers()
engine, _, _, _ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config="ds_config.json")
for _ in range(100):
    engine.train_batch()
