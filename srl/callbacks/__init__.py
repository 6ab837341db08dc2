"""Callbacks that come with SRL. Your own derive from :class:`srl.Callback`."""

from srl.callbacks.early_stopping import EarlyStopping as EarlyStopping
from srl.callbacks.option_schedule import Curriculum as Curriculum
from srl.callbacks.option_schedule import OptionSchedule as OptionSchedule
from srl.callbacks.webhook import Webhook as Webhook
