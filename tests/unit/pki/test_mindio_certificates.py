"""MindIO's own certificates: as long as MindIO asks, one authority for each job, and renewed without it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.job import HATrainingJob
from hajob.pki.authority_store import AuthorityStore
from hajob.pki.job_certificates import CHECK_SECONDS, JobCertificates
from hajob.pki.mindio_certificates import (
    KEY_BITS,
    is_mindio_certificate_due,
    issue_mindio_certificates,
    renew_mindio_certificate,
)
from hajob.pki.tls_secret import MINDIO_KEYS, read_tls_secret
from hajob.pods.coordinator_pod import coordinator_pod
from hajob.pods.naming import tls_secret_name
from hajob.pods.rank_pod import build_rank_pod
from hajob.pods.settings import PodSettings
from tests.rigs.fake_clock import FakeClock
from tests.rigs.fake_kube import FakeKube

NAMESPACE = "default"
EXAMPLE = Path(__file__).parents[3] / "examples/quickstart.yaml"
NOW = datetime(2030, 1, 1, tzinfo=UTC)
LIFETIME = timedelta(days=30)
POD_FILES = {"mindio-ca.crt", "mindio.crt", "mindio.key"}


def certificate(files: Mapping[str, bytes], name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(files[name])


def test_each_job_has_its_own_authority_with_long_keys() -> None:
    one, other = (issue_mindio_certificates(uid, NOW, LIFETIME) for uid in ("uid-1", "uid-2"))
    assert set(one) == set(MINDIO_KEYS)
    for name in ("mindio-ca.crt", "mindio.crt"):
        key = certificate(one, name).public_key()
        assert getattr(key, "key_size", 0) >= KEY_BITS
    certificate(one, "mindio.crt").verify_directly_issued_by(certificate(one, "mindio-ca.crt"))
    with pytest.raises(ValueError, match="does not match"):
        certificate(other, "mindio.crt").verify_directly_issued_by(certificate(one, "mindio-ca.crt"))


def test_a_certificate_is_renewed_in_time_by_the_same_authority() -> None:
    files = issue_mindio_certificates("uid-1", NOW, LIFETIME)
    assert not is_mindio_certificate_due(files, NOW + LIFETIME / 2, LIFETIME)
    assert is_mindio_certificate_due(files, NOW + LIFETIME * 3 / 4, LIFETIME)
    renewed = renew_mindio_certificate("uid-1", files, NOW + LIFETIME, LIFETIME)
    assert renewed["mindio-ca.crt"] == files["mindio-ca.crt"]
    assert renewed["mindio.key"] != files["mindio.key"]
    certificate(renewed, "mindio.crt").verify_directly_issued_by(certificate(files, "mindio-ca.crt"))


def raw_job(policy: str) -> Json:
    raw: Json = yaml.safe_load(EXAMPLE.read_text())
    raw["metadata"] |= {"namespace": NAMESPACE, "uid": "uid-1"}
    raw["spec"]["network"] = {"mindIOTLSPolicy": policy}
    return raw


def job_with_policy(policy: str) -> HATrainingJob:
    return HATrainingJob.from_object(raw_job(policy))


async def test_the_secret_of_a_job_has_them_where_it_asks() -> None:
    clock = FakeClock()
    kube = FakeKube(clock)
    job = HATrainingJob.from_object(kube.put(names.PLURAL, NAMESPACE, raw_job("Enabled")))
    key = ("secrets", NAMESPACE, tls_secret_name(job))
    await JobCertificates(kube, clock, AuthorityStore(kube, clock, "hajob-system", LIFETIME)).reconcile_secret(job)
    made = read_tls_secret(kube.objects[key])
    assert set(MINDIO_KEYS) < set(made)

    another = JobCertificates(kube, clock, AuthorityStore(kube, clock, "hajob-system", LIFETIME))
    await another.reconcile_secret(job)
    assert read_tls_secret(kube.objects[key]) == made
    for _ in range(25 * 24):
        clock.freeze(CHECK_SECONDS)
        if another.is_check_due:
            await another.reconcile_again(job)
    later = read_tls_secret(kube.objects[key])
    assert later["mindio-ca.crt"] == made["mindio-ca.crt"]
    assert later["mindio.crt"] != made["mindio.crt"]


def test_no_pod_gets_the_authoritys_key() -> None:
    settings = PodSettings(sidecar_image="hajob/sidecar:dev")
    job = job_with_policy("Enabled")
    for pod in (build_rank_pod(job, 0, 1, settings), coordinator_pod(job, 1, settings)):
        (volume,) = [one for one in pod["spec"]["volumes"] if one["name"] == "hajob-mindio-tls"]
        assert {item["key"] for item in volume["secret"]["items"]} == POD_FILES
        everyone = [*pod["spec"]["initContainers"], *pod["spec"]["containers"]]
        mounted = {one["name"] for one in everyone if "/hajob-mindio" in str(one.get("volumeMounts"))}
        assert mounted in ({"agent", "trainer"}, {"controller"})


def test_a_job_that_does_not_ask_has_nothing_of_it() -> None:
    settings = PodSettings(sidecar_image="hajob/sidecar:dev")
    job = job_with_policy("Disabled")
    for pod in (build_rank_pod(job, 0, 1, settings), coordinator_pod(job, 1, settings)):
        assert "mindio-tls" not in str(pod)
        assert "MINDIO_TLS" not in str(pod)
