"""Options of MuZero (Schrittwieser et al. 2020) with the search of Gumbel MuZero (Danihelka et al. 2022)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from srl.algorithms.actor_critic import check_device
from srl.algorithms.alphazero.board import board_of, check_board
from srl.algorithms.alphazero.config import TO_PLAY
from srl.algorithms.offpolicy.config import OffPolicyConfig
from srl.algorithms.sac.config import is_bounded
from srl.algorithms.search_memory import EVALUATION_LANES, check_search_memory
from srl.api.dataflow import Reanalysis, Replay, Sequences
from srl.api.policy import Policy
from srl.api.spaces import Box, Dict, Discrete, MultiDiscrete, Space, array_spec, choice_sizes
from srl.api.trainer import Trainer
from srl.base.tree import ArraySpec, TreeSpec
from srl.networks.options import MEMORY_OPTIONS
from srl.networks.spaces.actions import split_mask
from srl.networks.spaces.entities import check_parts

if TYPE_CHECKING:
    from srl.algorithms.muzero.network import MuZeroNetwork
    from srl.networks.distributions.distribution import Distribution
    from srl.search import ActionSamples, Search

SAMPLED_ACTIONS = 20
"""Number of actions in a node, as in Hubert et al. 2021, where there are too many for all."""


def has_two_players(observation: Space) -> bool:
    """Return whether observations are those of joint lanes of a game, which say who is to move."""
    return isinstance(observation, Dict) and observation.items.get(TO_PLAY) == Discrete(2)


@dataclass(frozen=True)
class MuZeroConfig(OffPolicyConfig):
    """MuZero: a search in a learned model chooses actions, and its results are what the network learns from. The
    network has a representation of the observation, dynamics and predictions, all of dense layers. For real-valued
    actions and for many choices it is Sampled MuZero (Hubert et al. 2021): each node has a sample of the actions."""

    UNUSED: ClassVar[tuple[str, ...]] = (
        *("box", "std", "towers", "global_keys", "activation", "network", "update_threads"),
        *("her", "her_ratio", *MEMORY_OPTIONS),
    )
    simulations: int = 16
    """Simulations per decision. In evaluation, 0 takes the actions of the policy network without a search."""
    search: Literal["gumbel", "puct"] = "gumbel"
    """Kind of search: Gumbel MuZero, or upper bounds with Dirichlet noise at the root (MuZero, AlphaZero)."""
    considered_actions: int = 16
    """With `gumbel`: number of actions at the root that sequential halving starts with."""
    dirichlet_alpha: float = 0.3
    """With `puct`: parameter of the noise at the root. Smaller values favor fewer actions."""
    dirichlet_fraction: float = 0.25
    """With `puct`: share of the noise in the prior of the root."""
    temperature: float = 1.0
    """With `puct`: actions are drawn in proportion to visits^(1 / temperature) at the start of the run. Gumbel search
    needs no temperature: its noise draws actions from the improved policy."""
    temperature_final: float = 0.25
    """With `puct`: temperature in the last quarter of the run; it is halfway, geometrically, in the quarter before."""
    sampled_actions: int = 0
    """Number of actions that are drawn from the policy in each node of a search, for Box and MultiDiscrete actions
    and for many choices. 0: all actions if they are Discrete, else 20."""
    sampled_temperature: float = 1.0
    """With sampled actions: they are drawn with probabilities proportional to policy^(1 / temperature), and the prior
    of the search is corrected for it. Above 1, searches see more unlikely actions."""
    entropy_weight: float = 0.3
    """With sampled actions: weight of the policy's entropy, which the loss subtracts. It keeps a policy from drifting
    to the bounds of the actions while the model still knows little about them."""
    search_memory_mb: int = 1024
    """Memory that the trees of a policy may take, in megabytes."""
    tower: Literal["dense", "residual"] = "dense"
    """Layers of the network: dense ones, or residual networks of 3x3 convolutions for boards, in which the states that
    the model predicts have the shape of the board, too."""
    channels: int = 32
    """With `residual`: channels of each convolution."""
    blocks: int = 2
    """With `residual`: blocks of two convolutions in the representation, and in the dynamics."""
    latent_size: int = 64
    """Size of the state that the model predicts."""
    hidden_sizes: tuple[int, ...] = (64,)
    """Sizes of the hidden layers of each part of the network: representation, dynamics and prediction."""
    residual: bool = False
    """Dynamics predict the change of the state, instead of the next state."""
    num_bins: int = 31
    """Number of bins of values and rewards, which are predicted as distributions of h(x) = sign(x) (sqrt(|x| + 1) - 1)
    + 0.001 x."""
    bin_width: float = 2.0
    """Distance of two bins under h. By default they reach from -30 to 30, which stands for -904 to 904; values beyond
    count as the outer bins."""
    unroll: int = 5
    """Steps of the model that each gradient step learns from."""
    bootstrap: Literal["target", "search"] = "target"
    """What a target of values adds after `n_step` rewards: the value that the target network gives to the observation
    there, or the root value of the search that was made there."""
    target_update: int = 50
    """Gradient steps between updates of the target network."""
    max_target_age: int | None = None
    """Reanalyze: largest age of policies and root values that are learned from, in versions (updates). Older ones are
    searched again with the newest parameters before a trainer gets them; `--reanalyze-workers` does it beforehand. 0:
    in each batch. None: targets stay as they were recorded."""
    value_weight: float = 0.25
    """Weight of the loss of values."""
    consistency_weight: float = 0.0
    """Weight of the loss of consistency (EfficientZero, Ye et al. 2021): predicted states should resemble the
    representations of the observations that followed. EfficientZero's is 2."""
    value_prefix: bool = False
    """Predict the sum of the rewards of up to 5 steps with a memory (LSTM), instead of each reward (EfficientZero). The
    search then calls torch instead of compiled code."""
    n_step: int = 20
    gamma: float = 0.997
    batch_size: int = 128
    replay_size: int = 100_000
    learning_starts: int = 500
    updates_per_decision: float = 0.5
    priority_beta: float = 1.0
    learning_rate: float = 2e-3
    max_grad_norm: float | None = 5.0
    device: str = "cpu"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_counts("latent_size", "unroll", "target_update", "considered_actions", "search_memory_mb")
        self._check_not_negative(
            *("simulations", "value_weight", "consistency_weight", "temperature", "temperature_final"),
            *("sampled_actions", "entropy_weight"),
        )
        self._check_positive("bin_width", "dirichlet_alpha", "sampled_temperature")
        self._check_range("dirichlet_fraction")
        if self.num_bins < 3 or self.num_bins % 2 == 0:
            raise ValueError(f"num_bins must be odd, so that one bin is 0, and at least 3; found {self.num_bins}")
        if self.max_target_age is not None:
            self._check_not_negative("max_target_age")
        self._check_counts("channels", "blocks")
        for name, known in (
            *(("search", ("gumbel", "puct")), ("bootstrap", ("target", "search"))),
            ("tower", ("dense", "residual")),
        ):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}; found {getattr(self, name)!r}")
        if self.replay_size < self.unroll + self.n_step:
            raise ValueError(
                f"replay_size must be at least unroll + n_step, {self.unroll + self.n_step} steps, so that a window "
                f"fits; found {self.replay_size}"
            )

    def check(self, observation: Space, action: Space) -> None:
        has_choices = isinstance(action, Discrete | MultiDiscrete) and min(choice_sizes(action), default=0) >= 1
        if not (has_choices or is_bounded(action)):
            expected = "Discrete or MultiDiscrete actions, or a Box of real numbers with finite bounds, low < high"
            raise ValueError(f"muzero needs {expected}; found {action}; for this space use ppo")
        if isinstance(action, Box):
            from srl.search.samples import check_std

            check_std(self.initial_std)
        if self.simulations < 1:
            raise ValueError(
                f"simulations must be at least 1 in training, found {self.simulations}; only `srl eval latest "
                "--simulations 0` plays without a search"
            )
        if self.tower == "residual":
            check_board(board_of(split_mask(observation, action, self.mask_key)[0]))
            if self.samples(action):
                raise ValueError("residual networks for boards have no sampled actions; use tower='dense'")
        if self.value_prefix and (self.tower == "residual" or self.samples(action) or has_two_players(observation)):
            raise ValueError("value_prefix is for one player, dense layers and actions that are not sampled")
        check_parts(split_mask(observation, action, self.mask_key)[0], self)
        check_device(self.device)
        if self.global_keys:
            raise ValueError(f"global_keys need a separate critic, which muzero does not have: {self.global_keys}")
        self.check_lanes(observation, action, EVALUATION_LANES)

    def check_lanes(self, observation: Space, action: Space, num_lanes: int) -> None:
        samples = self.samples(action)
        size = self.latent_size + (samples.kept if samples else 0)
        size = 3 * size + 2 if self.value_prefix else size
        if self.tower == "residual":
            board: Any = board_of(split_mask(observation, action, self.mask_key)[0])
            size = self.channels * math.prod(board.shape[1:])
        check_search_memory(self.build_search(action), num_lanes, 4 * size)

    def samples(self, action: Space) -> ActionSamples | None:
        """Return how actions are sampled; None: searches consider all actions."""
        from srl.search import ActionSamples

        if isinstance(action, Discrete) and not self.sampled_actions:
            return None
        choices = choice_sizes(action)
        size = len(choices) if choices else math.prod(array_spec(action).shape)  # type: ignore[union-attr]
        return ActionSamples(self.sampled_actions or SAMPLED_ACTIONS, size, choices, self.sampled_temperature)

    def num_actions(self, action: Space) -> int:
        """Return the number of actions of a node."""
        samples = self.samples(action)
        if samples:
            return samples.count
        assert isinstance(action, Discrete)
        return action.n

    def build_search(self, action: Space) -> Search:
        from srl.search import GumbelSearch, PUCTSearch

        if self.search == "gumbel":
            return GumbelSearch(
                self.simulations,
                self.num_actions(action),
                self.gamma,
                max_memory_mb=self.search_memory_mb,
                max_considered=self.considered_actions,
            )
        return PUCTSearch(
            self.simulations,
            self.num_actions(action),
            self.gamma,
            max_memory_mb=self.search_memory_mb,
            dirichlet_alpha=self.dirichlet_alpha,
            dirichlet_fraction=self.dirichlet_fraction,
        )

    def dataflow(self) -> Replay:
        reanalysis = None
        if self.max_target_age is not None:
            # Root values to bootstrap from are in all rows, policies to learn in those of the unrolled steps.
            rows = self.unroll + 1 + (self.n_step if self.bootstrap == "search" else 0)
            reanalysis = Reanalysis(self.max_target_age, rows)
        return replace(super().dataflow(), unit=Sequences(self.unroll + self.n_step), reanalysis=reanalysis)

    def decision_spec(self, observation: Space, action: Space) -> dict[str, TreeSpec]:
        samples, number = self.samples(action), self.num_actions(action)
        return {
            "action": ArraySpec(action.shape, "float32") if isinstance(action, Box) else array_spec(action),
            # With samples: the weight of each, and the action itself, which is rewritten with it.
            "policy": ArraySpec((number, 1 + samples.size) if samples else (number,), "float32"),
            "value": ArraySpec((), "float32"),
        }

    def temperature_at(self, progress: float) -> float:
        """Return the temperature at `progress` in [0, 1]: three steps, as in MuZero's schedule (1, 0.5, 0.25)."""
        if progress < 0.5 or self.temperature == 0.0:
            return self.temperature
        middle = (self.temperature * self.temperature_final) ** 0.5
        return middle if progress < 0.75 else self.temperature_final

    def wants_joint_seats(self) -> bool:
        return True

    def searches(self) -> bool:
        return True

    def with_simulations(self, number: int) -> Self:
        return replace(self, simulations=number)

    def suggested_lanes(self) -> int:
        return 8

    def suggested_horizon(self) -> int:
        return 8

    def build_network(self, observation: Space, action: Space, seed: int) -> tuple[MuZeroNetwork, Distribution]:
        """Build the network, which outputs the parameters of the policy [B, n] and the value [B], and the distribution
        of actions."""
        from srl.algorithms.muzero.network import build_muzero_network
        from srl.networks.build import distribution_for

        squashed = replace(self, box="squashed", std="state")
        return build_muzero_network(observation, action, self, seed), distribution_for(action, squashed)

    def build_policy(self, observation: Space, action: Space, seed: int) -> Policy:
        from srl.algorithms.muzero.policy import MuZeroPolicy
        from srl.algorithms.muzero.samples import actions_of

        network = self.build_network(observation, action, seed)[0]
        search = self.build_search(action) if self.simulations else None
        return MuZeroPolicy(network, search, seed, self.device, actions_of(action))

    def build_trainer(self, observation: Space, action: Space, seed: int) -> Trainer:
        from srl.algorithms.muzero.samples import actions_of
        from srl.algorithms.muzero.trainer import MuZeroTrainer

        return MuZeroTrainer(self, self.build_network(observation, action, seed)[0], seed, actions_of(action))
