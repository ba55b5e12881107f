"""Every algorithm by name: default hyperparameters and maker."""

from vinerl.agents.vine import VineConfig, make_vine
from vinerl.rl.learner import AgentConfig, Make

AGENTS: dict[str, tuple[AgentConfig, Make]] = {
    "vine": (VineConfig(), make_vine),
}
