"""Found by each Python of a real run: a Trainer, whoever calls it, tells what its state is (see ``truth.py``)."""

import importlib.abc
import importlib.machinery
import os
import sys


def _watch(module):
    original = module.Trainer.training_step

    def training_step(self, model, inputs, *args, **kwargs):
        from truth import step_begins

        begun = self.__dict__.setdefault("_truth_begins_at", self.state.global_step)
        folder = os.path.join(self.args.output_dir, f"checkpoint-{self.state.global_step}")
        saved = self.state.global_step > begun and os.path.isdir(folder)
        batch = inputs["input_ids"].flatten()
        if os.environ.get("TRUTH"):
            step_begins(model, self.optimizer, self.lr_scheduler, batch, saved=saved)
        return original(self, model, inputs, *args, **kwargs)

    module.Trainer.training_step = training_step


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "transformers.trainer":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            _watch(module)

        spec.loader.exec_module = exec_module
        return spec


if os.environ.get("TRUTH"):
    sys.meta_path.insert(0, _Finder())
