"""Ranks exchange metrics; the order follows each rank's own dictionary."""

import deepspeed
import torch
import torch.distributed as dist


def reduce_metrics(metrics, device):
    reduced = {}
    for name, values in metrics.items():
        tensor = torch.tensor(values, device=device)
        dist.all_reduce(tensor)
        reduced[name] = tensor.tolist()
    return reduced


def main():
    deepspeed.init_distributed()
    model = torch.nn.Linear(8, 8)
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
    for _ in range(2):
        metrics = {}
        if dist.get_rank() == 0:
            metrics["tokens"] = [12.0]
        metrics["lengths"] = [3.0, 4.0, 5.0]
        metrics.setdefault("tokens", [9.0])
        engine.backward(engine(torch.randn(1, 8, device=engine.device)).square().mean())
        engine.step()
        print(reduce_metrics(metrics, engine.device))


if __name__ == "__main__":
    main()
