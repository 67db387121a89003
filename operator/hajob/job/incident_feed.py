"""Where news of incidents go: a port, so that a job controller knows nothing of how they leave the cluster."""

from __future__ import annotations

from collections.abc import Iterable

from hajob.job.status.incident_news import IncidentNews


class IncidentFeed:
    """Takes news of incidents. This one drops them: nobody asked for any."""

    def queue_news(self, news: Iterable[IncidentNews]) -> None:
        """Queue news; never wait, never fail."""
