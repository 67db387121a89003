"""What the configuration of Kueue's manager does to jobs and their pods, as the doctor reads it. Pure.

Any field may be missing or be of another kind; what is not said has Kueue's own default.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from hajob.api import constants as names
from hajob.domain.text import counted_noun
from hajob.sources.reading import is_integer, items, mapping, text

KEY: Final = "controller_manager_config.yaml"
KNOWN_OWNER: Final = f"{names.KIND}.{names.VERSION}.{names.GROUP}"
_UNMANAGED: Final = ("kube-system", "kueue-system")
"""Namespaces that Kueue leaves alone where its configuration names none."""


@dataclass(frozen=True)
class KueueConfiguration:
    """The manager's configuration.

    Attributes:
        content: as it is written; None where it is not known.
    """

    content: Mapping[str, Any] | None = None

    @classmethod
    def of_config_map(cls, config_map: Mapping[str, Any] | None) -> KueueConfiguration:
        """Read the ConfigMap of the manager; None, or one that cannot be read: nothing is known."""
        written = mapping(mapping(config_map).get("data")).get(KEY)
        if not isinstance(written, str):
            return cls()
        try:
            return cls(mapping(yaml.safe_load(written)))
        except yaml.YAMLError:
            return cls()

    @property
    def is_known(self) -> bool:
        """Whether it could be read."""
        return self.content is not None

    @property
    def knows_jobs(self) -> bool:
        """Whether HATrainingJobs are among its external frameworks."""
        return KNOWN_OWNER in list(items(self._part("integrations").get("externalFrameworks")))

    def takes_pods(self, namespace: Mapping[str, Any], *, queued: bool, has_default: bool) -> bool:
        """Return whether pods of a job become jobs of their own, each with a gate of Kueue's.

        Args:
            namespace: of the job, with its labels.
            queued: the job has the label of a queue.
            has_default: the namespace has a LocalQueue named `default`.
        """
        frameworks = self._part("integrations").get("frameworks")
        # Since 0.16 the integration is on where nothing is said.
        if frameworks is not None and "pod" not in list(items(frameworks)):
            return False
        if not self._manages_namespace(namespace):
            return False
        # Of an owner that it knows Kueue asks whether that has a queue; without one the pod gets the default one.
        by_default = has_default and not (self.knows_jobs and queued)
        all_of_them = mapping(self.content).get("manageJobsWithoutQueueName") is True
        return by_default or (all_of_them and not self.knows_jobs)

    def _manages_namespace(self, namespace: Mapping[str, Any]) -> bool:
        selector = mapping(self.content).get("managedJobsNamespaceSelector")
        if selector is None:
            return labels_of_namespace(namespace).get(_NAME) not in _UNMANAGED
        return matches_selector(selector, labels_of_namespace(namespace))

    def counted_resources(self, asked: Iterable[str]) -> set[str]:
        """Return what Kueue counts where these resources are asked for: some are left out, others stand for some."""
        resources = self._part("resources")
        counted = set(asked)
        for one in map(mapping, items(resources.get("transformations"))):
            if (name := text(one.get("input"))) in counted:
                counted |= set(map(str, mapping(one.get("outputs"))))
                # Retain, where nothing is said: both are counted.
                if one.get("strategy") == "Replace":
                    counted.discard(name)
        # An empty prefix leaves out everything, in Kueue as here.
        excluded = tuple(one for one in items(resources.get("excludeResourcePrefixes")) if isinstance(one, str))
        return {name for name in counted if not name.startswith(excluded)}

    @property
    def ignores_undeclared(self) -> bool:
        """Whether a resource that a queue does not name is not counted."""
        return self._part("resources").get("quotaCheckStrategy") == "IgnoreUndeclared"

    @property
    def blocks_admission(self) -> bool:
        """Whether nobody else is admitted while the pods of an admitted job start."""
        return bool(self.words_on_pods_ready) and self._part("waitForPodsReady").get("blockAdmission") is True

    @property
    def words_on_pods_ready(self) -> str:
        """Return what it does to a job whose pods are late, in words; empty: nothing."""
        ready = self._part("waitForPodsReady")
        # Up to 0.16 the configuration has a switch, later the time alone.
        if not ready or ready.get("enable") is False:
            return ""
        within, limit = ready.get("timeout", "5m"), mapping(ready.get("requeuingStrategy")).get("backoffLimitCount")
        if is_integer(limit):
            return (
                f"waitForPodsReady evicts a job whose pods do not all run within {within}, and deactivates it after "
                f"{counted_noun(limit, 'such eviction')}"
            )
        return f"waitForPodsReady evicts a job whose pods do not all run within {within}"

    def _part(self, name: str) -> Mapping[str, Any]:
        return mapping(mapping(self.content).get(name))


_NAME: Final = "kubernetes.io/metadata.name"


def labels_of_namespace(namespace: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels of a namespace, its name among them, as the API server sets it."""
    metadata = mapping(namespace.get("metadata"))
    named = {_NAME: text(metadata.get("name"))}
    return named | {str(key): text(value) for key, value in mapping(metadata.get("labels")).items()}


def matches_selector(selector: object, labels: Mapping[str, str]) -> bool:
    """Return whether a label selector chooses something with these labels; an empty one chooses everything."""
    written = mapping(selector)
    if any(labels.get(str(key)) != value for key, value in mapping(written.get("matchLabels")).items()):
        return False
    return all(_is_expression_met(mapping(one), labels) for one in items(written.get("matchExpressions")))


def _is_expression_met(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = text(expression.get("key")), list(items(expression.get("values")))
    met = {
        "In": labels.get(key) in values,
        "NotIn": labels.get(key) not in values,
        "Exists": key in labels,
        "DoesNotExist": key not in labels,
    }
    return met.get(text(expression.get("operator")), False)
