"""Every algorithm by name: its default hyperparameters and its maker."""

from vinerl.agents.bam import BamConfig, make_bam
from vinerl.agents.cgql import CgqlConfig, make_cgql
from vinerl.agents.dsrl import DsrlConfig, make_dsrl
from vinerl.agents.fawac import FawacConfig, make_fawac
from vinerl.agents.fbrac import FbracConfig, make_fbrac
from vinerl.agents.fedit import FeditConfig, make_fedit
from vinerl.agents.fql import FqlConfig, make_fql
from vinerl.agents.ifql import IfqlConfig, make_ifql
from vinerl.agents.qam import QamConfig, make_qam
from vinerl.agents.rebrac import RebracConfig, make_rebrac
from vinerl.agents.score import ScoreConfig, make_score
from vinerl.agents.vine import VineConfig, make_vine
from vinerl.rl.learner import AgentConfig, Make

AGENTS: dict[str, tuple[AgentConfig, Make]] = {
    "vine": (VineConfig(), make_vine),
    "rebrac": (RebracConfig(), make_rebrac),
    "fql": (FqlConfig(), make_fql),
    "fawac": (FawacConfig(), make_fawac),
    "ifql": (IfqlConfig(), make_ifql),
    "qam": (QamConfig(), make_qam),
    "qam-fql": (QamConfig(head="onestep"), make_qam),
    "qam-edit": (QamConfig(head="edit"), make_qam),
    "dac": (ScoreConfig(pull="dac", alpha=0.3, sampler="ddpm"), make_score),
    "qsm": (ScoreConfig(pull="qsm"), make_score),
    "cgql": (CgqlConfig(mode="simple"), make_cgql),
    "cgql-m": (CgqlConfig(mode="mse"), make_cgql),
    "cgql-l": (CgqlConfig(mode="linex"), make_cgql),
    "dsrl": (DsrlConfig(), make_dsrl),
    "fedit": (FeditConfig(), make_fedit),
    "fbrac": (FbracConfig(), make_fbrac),
    "bam": (BamConfig(), make_bam),
}
