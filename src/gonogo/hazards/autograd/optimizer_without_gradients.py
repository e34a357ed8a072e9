from gonogo.hazards.rule import Certainty, Findings, Hazard, RehearsalRecord, Text


class OptimizerWithoutGradients(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """Ranks that went backward and stepped, each time without any gradient."""
        idle = [rank for rank in record.ranks if rank.as_run is not None and rank.as_run.idle]
        if not idle:
            return
        run = idle[0].as_run
        assert run is not None
        yield self.finding(
            Text(
                "{optimizer} made {steps} steps, and none of its parameters had a gradient in any: the backward "
                "reached other tensors than those that it holds. Nothing is trained.",
                "{optimizer} 更新了 {steps} 步，但它的参数在任何一步都没有梯度：反向到达的不是它所持有的张量。"
                "什么都没有被训练。",
            ).format(optimizer=run.optimizer, steps=idle[0].steps),
            certainty=Certainty.CERTAIN,
            cure=(
                Text(
                    "Create the optimizer last, from the model that is trained: after it is wrapped, moved and given "
                    "adapters",
                    "最后再用被训练的模型创建优化器：在包装、移动设备、添加适配器之后",
                ),
                Text(
                    "Under FSDP 1: use_orig_params=True (fsdp_use_orig_params: true)",
                    "FSDP 1 下：use_orig_params=True（fsdp_use_orig_params: true）",
                ),
            ),
            ranks=tuple(rank.rank for rank in idle),
        )
