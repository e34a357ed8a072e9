"""A policy learns to walk along a line, from rollouts of the same length on each rank, restarted where they end.

truth: GO
why: each rank makes as many updates as the others; what differs is only how often its walks begin anew.
"""

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel


class Line:
    """Walks from 0 to 5 or -5, for at most 20 moves."""

    def reset(self):
        self.at, self.moves = 0, 0
        return [0.0, 0.0]

    def step(self, action):
        self.at += 1 if action == 1 else -1
        self.moves += 1
        done = abs(self.at) >= 5 or self.moves >= 20
        return [self.at / 5, self.moves / 20], float(self.at >= 5), done


class ActorCritic(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(2, 16)
        self.actor = torch.nn.Linear(16, 2)
        self.critic = torch.nn.Linear(16, 1)

    def forward(self, seen):
        hidden = self.body(seen).tanh()
        return self.actor(hidden), self.critic(hidden).squeeze(-1)


device = start()
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(ActorCritic().to(device))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
line = Line()
seen, ended = line.reset(), 0
for update in range(6):
    states, actions, rewards, ends = [], [], [], []
    for _ in range(32):
        state = torch.tensor(seen, device=device)
        with torch.no_grad():
            logits, _ = model.module(state)
        action = torch.distributions.Categorical(logits=logits).sample()
        seen, reward, done = line.step(action.item())
        states.append(state)
        actions.append(action)
        rewards.append(reward)
        ends.append(done)
        if done:
            ended += 1
            seen = line.reset()
    returns, following = [], 0.0
    for reward, done in zip(reversed(rewards), reversed(ends), strict=True):
        following = reward + 0.99 * following * (not done)
        returns.append(following)
    returns = torch.tensor(returns[::-1], device=device)
    logits, values = model(torch.stack(states))
    advantages = returns - values.detach()
    sums = torch.stack([advantages.sum(), advantages.pow(2).sum(), torch.tensor(32.0, device=device)])
    dist.all_reduce(sums)
    mean = sums[0] / sums[2]
    advantages = (advantages - mean) / ((sums[1] / sums[2] - mean.pow(2)).clamp(min=0).sqrt() + 1e-8)
    policy = torch.distributions.Categorical(logits=logits)
    loss = -(policy.log_prob(torch.stack(actions)) * advantages).mean() + 0.5 * (returns - values).pow(2).mean()
    (loss - 0.01 * policy.entropy().mean()).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    optimizer.zero_grad()
    print(update, loss.item(), ended)
dist.destroy_process_group()
