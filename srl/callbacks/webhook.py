"""Messages to a webhook."""

from __future__ import annotations

import json
import urllib.request
from dataclasses import dataclass

from srl.api.status import RunStatus
from srl.callbacks.callback import Callback, RunControl

TIMEOUT = 10.0


@dataclass
class Webhook(Callback):
    """Posts a message when the run begins and ends: JSON with the field `text`, as Slack and Mattermost expect."""

    url: str
    field: str = "text"
    """Name of the field with the message; Discord expects `content`."""

    def __post_init__(self) -> None:
        if not self.url.startswith(("https://", "http://")):
            raise ValueError(f"url must begin with https:// or http://, found {self.url!r}")

    def on_start(self, run: RunControl) -> None:
        self._post(f"{run.name} begins at {run.steps:,} steps")

    def on_end(self, report: RunStatus) -> None:
        mean = "" if report.return_mean is None else f", return {report.return_mean:.4g}"
        reason = f" ({report.reason})" if report.reason else ""
        self._post(f"{report.run}: {report.state}{reason} after {report.steps:,} steps{mean}")

    def _post(self, text: str) -> None:
        data = json.dumps({self.field: text}).encode()
        request = urllib.request.Request(self.url, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT):
                pass
        except OSError as error:  # a service that is away must not end a run
            self.run.notify(f"the webhook could not be reached: {getattr(error, 'reason', error)}")
