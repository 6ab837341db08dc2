"""Batched Monte-Carlo tree search: many trees at once, with one call of the network per simulation."""

from srl.search.mlp import MLPModel as MLPModel
from srl.search.mlp import MLPModelConfig as MLPModelConfig
from srl.search.noise import sample_actions as sample_actions
from srl.search.queue import SearchQueue as SearchQueue
from srl.search.results import Evaluation as Evaluation
from srl.search.results import SearchResult as SearchResult
from srl.search.results import Step as Step
from srl.search.samples import ActionSamples as ActionSamples
from srl.search.samples import sampled_actions as sampled_actions
from srl.search.search import GumbelSearch as GumbelSearch
from srl.search.search import PUCTSearch as PUCTSearch
from srl.search.search import Search as Search
from srl.search.trees import Trees as Trees
