"""Options of AlphaZero (Silver et al. 2018) with the search of Gumbel MuZero (Danihelka et al. 2022)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from srl.algorithms.actor_critic import check_device
from srl.algorithms.alphazero.board import check_board
from srl.algorithms.offpolicy.config import OffPolicyConfig
from srl.algorithms.search_memory import EVALUATION_LANES, check_search_memory
from srl.api.dataflow import WHOLE_EPISODE, Replay, Transitions
from srl.api.policy import Policy
from srl.api.simulator import SimulatorConfig
from srl.api.spaces import Discrete, Space, array_spec
from srl.api.trainer import Trainer
from srl.base.tree import ArraySpec, TreeSpec
from srl.networks.options import MEMORY_OPTIONS

if TYPE_CHECKING:
    from srl.algorithms.alphazero.network import AlphaZeroNetwork
    from srl.networks.distributions.distribution import Distribution
    from srl.search import Search

STATE, TO_PLAY = "state", "to_play"
"""Keys of observations: the simulator's state, and the player to move."""
MOVER_BYTES = 8  # of the player to move, beside each state of a tree


@dataclass(frozen=True)
class AlphaZeroConfig(OffPolicyConfig):
    """AlphaZero for games and tasks with a simulator, for one player or two: a search with the rules chooses actions,
    and the network learns the policy that the search found, and the result of the game."""

    UNUSED: ClassVar[tuple[str, ...]] = (
        *("box", "std", "initial_std", "towers", "global_keys", "body", "entities", "scans", "entity_size"),
        *("attention_heads", "network", "update_threads", "her", "her_ratio", "random_shift", "prioritized"),
        *("priority_alpha", "priority_beta", "normalize_observation", "observation_clip", "game", *MEMORY_OPTIONS),
    )
    simulations: int = 32
    """Simulations per decision. In evaluation, 0 takes the actions of the policy network without a search."""
    search: Literal["gumbel", "puct"] = "gumbel"
    """Kind of search: Gumbel MuZero, or upper bounds with Dirichlet noise at the root (AlphaZero)."""
    considered_actions: int = 16
    """With `gumbel`: number of actions at the root that sequential halving starts with."""
    dirichlet_alpha: float = 0.3
    """With `puct`: parameter of the noise at the root. Smaller values favor fewer actions."""
    dirichlet_fraction: float = 0.25
    """With `puct`: share of the noise in the prior of the root."""
    temperature: float = 1.0
    """With `puct`: actions are drawn in proportion to visits^(1 / temperature) in the first moves of a game. Gumbel
    search needs no temperature: its noise draws actions from the improved policy."""
    temperature_moves: int = 30
    """With `puct`: number of these moves. Later actions are those with the most visits."""
    foresight: int = 0
    """Plies that the rules alone look ahead from each position of a tree, without the network. 1: a move that wins at
    once is taken, and the position has its value. 2: also, no move is tried that lets the other player win at once,
    unless all do."""
    search_memory_mb: int = 1024
    """Memory that the trees of a policy may take, in megabytes."""
    tower: Literal["dense", "residual"] = "dense"
    """Layers between the position and the outputs: dense ones of `hidden_sizes`, or a residual network of 3x3
    convolutions, for boards."""
    hidden_sizes: tuple[int, ...] = (128, 128)
    activation: Literal["tanh", "relu"] = "relu"
    channels: int = 32
    """With `residual`: channels of each convolution."""
    blocks: int = 3
    """With `residual`: number of blocks of two convolutions."""
    search_precision: Literal["float32", "bfloat16", "auto"] = "float32"
    """Precision of the tower in searches. With `bfloat16` convolutions take half of the time on CPUs that multiply such
    numbers (AVX-512 BF16) and on GPUs, and longer on others. `auto` takes it where it is faster."""
    symmetries: bool = True
    """Turn and mirror the positions that are learned from at random, as far as the game has symmetries."""
    value_weight: float = 1.0
    """Weight of the loss of values."""
    search_value_share: float = 0.0
    """Share of the root value that the search found in the target of a value; the result of the game has the rest. It
    varies less than results do, but knows only what the network knows."""
    weight_decay: float = 1e-5
    """Coefficient of the squared parameters in the loss."""
    target_update: int = 100
    """Gradient steps between updates of the target network, from which unfinished games bootstrap."""
    n_step: int = 0
    """Steps of rewards in a target before it bootstraps. 0: all until the end of the episode."""
    gamma: float = 1.0
    batch_size: int = 512
    replay_size: int = 50_000
    learning_starts: int = 2_000
    updates_per_decision: float = 0.0156
    """Gradient steps per collected decision: by default each decision is learned from 8 times."""
    learning_rate: float = 2e-3
    max_grad_norm: float | None = 5.0
    device: str = "cpu"
    game: SimulatorConfig | None = None
    """The rules, which the environment provides."""

    def __post_init__(self) -> None:
        if self.n_step == 0:  # the only value that the base class refuses
            replace(self, n_step=1)
        else:
            super().__post_init__()
        self._check_not_negative("simulations", "temperature", "temperature_moves", "value_weight", "weight_decay")
        self._check_counts("considered_actions", "search_memory_mb", "channels", "blocks", "target_update")
        self._check_positive("dirichlet_alpha")
        self._check_range("dirichlet_fraction", "search_value_share")
        if self.foresight not in (0, 1, 2):
            raise ValueError(f"foresight must be 0, 1 or 2 plies, found {self.foresight}")
        for name, known in (
            ("search", ("gumbel", "puct")),
            ("tower", ("dense", "residual")),
            ("search_precision", ("float32", "bfloat16", "auto")),
        ):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}; found {getattr(self, name)!r}")

    def check(self, observation: Space, action: Space) -> None:
        if not (isinstance(action, Discrete) and action.n >= 1):
            raise ValueError(f"alphazero needs Discrete actions, found {action}; for this space use sac or ppo")
        if self.simulations < 1:
            raise ValueError(
                f"simulations must be at least 1 in training, found {self.simulations}; only an evaluation may play "
                "without a search"
            )
        check_device(self.device)
        if self.game is None:  # the environment provides it when a run is prepared
            return
        spec = self.game.build().spec
        if action.n != spec.num_actions:
            raise ValueError(f"{spec.name} has {spec.num_actions} actions, but the environment has {action}")
        if self.tower == "residual":
            check_board(spec.observation)
        self.check_lanes(observation, action, EVALUATION_LANES)

    def check_lanes(self, observation: Space, action: Space, num_lanes: int) -> None:
        if self.game is not None:
            spec = self.game.build().spec
            check_search_memory(self.build_search(spec.num_actions), num_lanes, spec.state.nbytes + MOVER_BYTES)

    def _game(self) -> SimulatorConfig:
        if self.game is None:
            raise ValueError("alphazero needs an environment with a simulator, such as game:connect-four")
        return self.game

    def build_search(self, num_actions: int) -> Search:
        from srl.search import GumbelSearch, PUCTSearch

        if self.search == "gumbel":
            return GumbelSearch(
                self.simulations,
                num_actions,
                self.gamma,
                max_memory_mb=self.search_memory_mb,
                max_considered=self.considered_actions,
            )
        return PUCTSearch(
            self.simulations,
            num_actions,
            self.gamma,
            max_memory_mb=self.search_memory_mb,
            dirichlet_alpha=self.dirichlet_alpha,
            dirichlet_fraction=self.dirichlet_fraction,
        )

    def dataflow(self) -> Replay:
        return Replay(
            Transitions(self.n_step or WHOLE_EPISODE, self.gamma),
            self.batch_size,
            self.replay_size,
            self.learning_starts,
            self.updates_per_decision,
        )

    def decision_spec(self, observation: Space, action: Space) -> dict[str, TreeSpec]:
        assert isinstance(action, Discrete)
        return {
            "action": array_spec(action),
            "policy": ArraySpec((action.n,), "float32"),
            "value": ArraySpec((), "float32"),
        }

    def wants_simulator(self) -> bool:
        return True

    def wants_joint_seats(self) -> bool:
        return True

    def for_simulator(self, simulator: SimulatorConfig) -> Self:
        return replace(self, game=simulator)

    def searches(self) -> bool:
        return True

    def with_simulations(self, number: int) -> Self:
        return replace(self, simulations=number)

    def suggested_lanes(self) -> int:
        return 64

    def suggested_horizon(self) -> int:
        return 8

    def build_network(self, observation: Space, action: Space, seed: int) -> tuple[AlphaZeroNetwork, Distribution]:
        """Build the network, which outputs the logits of the policy [B, A] and the value [B], and the distribution of
        actions."""
        from srl.algorithms.alphazero.network import build_alphazero_network
        from srl.networks.build import distribution_for

        spec = self._game().build().spec
        return build_alphazero_network(observation, action, spec, self, seed), distribution_for(action, self)

    def build_policy(self, observation: Space, action: Space, seed: int) -> Policy:
        from srl.algorithms.alphazero.policy import AlphaZeroPolicy

        return AlphaZeroPolicy(self, self._game().build(), self.build_network(observation, action, seed)[0], seed)

    def build_trainer(self, observation: Space, action: Space, seed: int) -> Trainer:
        from srl.algorithms.alphazero.trainer import AlphaZeroTrainer

        return AlphaZeroTrainer(self, self._game().build(), self.build_network(observation, action, seed)[0], seed)
