"""Secrets that are deleted, damaged or refused: jobs keep running, and what replaces a pod finds its certificates."""

from __future__ import annotations

import base64
import ssl
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from hajob.api import constants as names
from hajob.api.job import HATrainingJob
from hajob.kube.client import ApiError
from hajob.pki.authority_store import KEPT_SECONDS, REPLACE_BEFORE, SECRET_NAME, AuthorityStore
from hajob.pki.certificates import SPREAD
from hajob.pki.job_certificates import CHECK_SECONDS, JobCertificates
from hajob.pki.tls_secret import read_tls_secret, tls_secret
from hajob.pods.naming import tls_secret_name
from tests.rigs.certificates import YEAR, certificates_of_a_job
from tests.rigs.fake_clock import FakeClock
from tests.rigs.fake_kube import FakeKube
from tests.rigs.job_controller import NAMESPACE, ControllerTown, settle_town
from tests.rigs.metrics import sample
from tests.rigs.tls_handshakes import tls_context, tls_handshake

HOME = "hajob-system"
EXAMPLE = Path(__file__).parents[3] / "examples/quickstart.yaml"


class World:
    """A server, a job on it, and leaders one after the other."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.kube = FakeKube(self.clock)
        raw = yaml.safe_load(EXAMPLE.read_text())
        raw["metadata"] |= {"namespace": NAMESPACE, "uid": "uid-1"}
        self.job = HATrainingJob.from_object(self.kube.put(names.PLURAL, NAMESPACE, raw))
        self.key = ("secrets", NAMESPACE, tls_secret_name(self.job))

    def store(self) -> AuthorityStore:
        return AuthorityStore(self.kube, self.clock, HOME, YEAR)

    def leader(self) -> JobCertificates:
        return JobCertificates(self.kube, self.clock, self.store())

    def material(self) -> dict[str, bytes]:
        return read_tls_secret(self.kube.objects[self.key])

    async def pass_days(self, certificates: JobCertificates, days: float) -> None:
        """A leader looks now and then, as the reconcile loop has it look."""
        end = self.clock.seconds + days * 86_400
        while self.clock.seconds < end:
            self.clock.freeze(8 * CHECK_SECONDS)
            await certificates.reconcile_again(self.job)


@pytest.fixture
def world() -> World:
    return World()


def agree(tmp_path: Path, client: dict[str, bytes], server: dict[str, bytes]) -> None:
    """The operator dials the coordinator; raises where TLS does."""
    (tmp_path / "client").mkdir(exist_ok=True)
    (tmp_path / "server").mkdir(exist_ok=True)
    dialling = tls_context(ssl.Purpose.SERVER_AUTH, tmp_path / "client", client, "operator")
    serving = tls_context(ssl.Purpose.CLIENT_AUTH, tmp_path / "server", server, "coordinator")
    tls_handshake(dialling, serving, "coordinator.uid-1")


# ------------------------------------------------------------------------------------------ the authority


async def test_every_leader_finds_the_first_ones_authority(world: World) -> None:
    first = await world.store().trusted_authorities()
    assert await world.store().trusted_authorities() == first
    assert len(first) == 1


async def test_a_deleted_authority_is_put_back(world: World) -> None:
    store = world.store()
    first = await store.trusted_authorities()
    del world.kube.objects["secrets", HOME, SECRET_NAME]
    world.clock.freeze(KEPT_SECONDS)
    assert await store.trusted_authorities() == first
    assert await world.store().trusted_authorities() == first


async def test_an_authority_is_replaced_when_an_admin_says_so(world: World) -> None:
    store = world.store()
    first = await store.trusted_authorities()
    world.clock.freeze(86_400)
    stored = world.kube.objects["secrets", HOME, SECRET_NAME]
    stored["metadata"]["annotations"] = {REPLACE_BEFORE: store.current_time.isoformat()}
    found = await store.trusted_authorities()
    assert len(found) == 2
    assert found[0] == first[0]
    world.clock.freeze(KEPT_SECONDS)
    assert await store.trusted_authorities() == found, "once"


@pytest.mark.parametrize("damage", [{"0.crt": "eA=="}, {"0.key": None}])
async def test_a_damaged_authority_is_told_and_not_replaced(world: World, damage: dict[str, Any]) -> None:
    await world.store().trusted_authorities()
    data = world.kube.objects["secrets", HOME, SECRET_NAME]["data"]
    for name, value in damage.items():
        if value is None:
            del data[name]
        else:
            data[name] = value
    with pytest.raises(ApiError, match=f"Secret {HOME}/{SECRET_NAME} cannot be read: .*delete it"):
        await world.store().trusted_authorities()


# ---------------------------------------------------------------------------------------------- one job


async def test_the_leader_puts_a_deleted_secret_back_as_it_was(world: World) -> None:
    leader = world.leader()
    await leader.reconcile_secret(world.job)
    before = world.material()
    del world.kube.objects[world.key]
    await leader.reconcile_again(world.job)
    assert world.material() == before


async def test_a_new_leader_makes_what_running_pods_trust(world: World, tmp_path: Path) -> None:
    """The Secret and everyone who remembered it are gone; coordinator and agents run on with their files."""
    await world.leader().reconcile_secret(world.job)
    running = world.material()
    del world.kube.objects[world.key]
    leader = world.leader()
    await leader.reconcile_secret(world.job)
    assert world.material() != running
    agree(tmp_path, world.material(), running)
    agree(tmp_path, running, world.material())


async def test_certificates_are_replaced_while_the_job_runs(world: World) -> None:
    leader = world.leader()
    await leader.reconcile_secret(world.job)
    assert leader.credentials is not None
    held, before = leader.credentials, leader.credentials.certificate
    await world.pass_days(leader, 365 * 2 / 3 - 1)
    assert held.certificate == before
    await world.pass_days(leader, 2)
    assert held.certificate != before, "who dials holds the newest"
    assert held.certificate == world.material()["operator.crt"]


async def test_a_new_authority_reaches_a_job_in_three_steps(world: World) -> None:
    leader = world.leader()
    await leader.reconcile_secret(world.job)
    first = world.material()
    await world.pass_days(leader, 30)
    del world.kube.objects["secrets", HOME, SECRET_NAME]
    leader = world.leader()  # nobody remembers the authority
    await leader.reconcile_again(world.job)
    both = world.material()
    assert both["ca.crt"].count(b"BEGIN CERTIFICATE") == 2
    assert both["operator.crt"] == first["operator.crt"]
    await world.pass_days(leader, SPREAD / timedelta(days=1) + 0.1)
    signed = world.material()
    assert signed["ca.crt"] == both["ca.crt"]
    assert signed["operator.crt"] != first["operator.crt"]
    await world.pass_days(leader, 2)
    assert world.material()["ca.crt"].count(b"BEGIN CERTIFICATE") == 1


async def test_a_refused_replacement_leaves_the_old_in_use(world: World, caplog: pytest.LogCaptureFixture) -> None:
    leader = world.leader()
    await leader.reconcile_secret(world.job)
    before = world.material()
    world.clock.freeze(300 * 86_400)
    world.kube.server.faults.refuse(
        ApiError(403, "Forbidden", "cannot update"), matching=lambda one: one.method == "PUT"
    )
    count = sample("hajob_certificates_not_replaced_total")
    await leader.reconcile_again(world.job)
    assert world.material() == before
    assert "the old ones stay in use: 403 Forbidden" in caplog.text
    assert sample("hajob_certificates_not_replaced_total") == count + 1


async def test_the_immutable_secret_of_0_1_is_kept_as_it_is(world: World) -> None:
    made = {**tls_secret(world.job, certificates_of_a_job("uid-1")), "immutable": True}
    await world.kube.create_object("secrets", NAMESPACE, made)
    leader, before = world.leader(), world.material()
    await leader.reconcile_secret(world.job)
    await world.pass_days(leader, 3)
    assert world.material() == before
    del world.kube.objects[world.key]
    await leader.reconcile_again(world.job)
    assert world.material() == before
    assert world.kube.objects[world.key]["immutable"] is True, "kubelets remember that it was"


async def test_a_secret_that_cannot_be_made_is_told(world: World, caplog: pytest.LogCaptureFixture) -> None:
    leader = world.leader()
    await leader.reconcile_secret(world.job)
    del world.kube.objects[world.key]
    world.kube.fail(ApiError(500, "Internal", "away"))
    await leader.reconcile_again(world.job)
    assert "its certificates cannot be looked at: 500 Internal" in caplog.text
    assert not leader.is_check_due
    await world.clock.advance(31)
    assert leader.is_check_due
    assert leader.credentials is not None


# -------------------------------------------------------------------------------------- the whole controller


@pytest.mark.parametrize("new_leader", [False, True])
async def test_a_pod_made_after_its_secret_was_deleted_finds_it(new_leader: bool) -> None:
    town = ControllerTown()
    await town.train()
    await town.clock.advance(2)
    key = next(each for each in town.kube.objects if each[0] == "secrets" and each[2] != SECRET_NAME)
    before = base64.b64decode(town.kube.objects[key]["data"]["ca.crt"])
    del town.kube.objects[key]
    if new_leader:
        await town.controller.stop_managing()
        town.store = AuthorityStore(town.kube, town.clock, HOME, YEAR)
        town.open()
        await settle_town(town)
        await town.report(step=6)
    lost = next(pod for pod in town.pods() if pod.role == names.ROLE_RANK and pod.node_rank == 1)
    del town.kube.objects["pods", NAMESPACE, lost.name]
    town.controller.apply_pod(lost, deleted=True)
    for _ in range(5):
        await settle_town(town)
    made = [pod for pod in town.pods() if pod.role == names.ROLE_RANK and pod.node_rank == 1]
    assert [pod.name != lost.name for pod in made] == [True]
    assert base64.b64decode(town.kube.objects[key]["data"]["ca.crt"]) == before
    written = [body["metadata"]["name"] for kind, _, body in town.kube.writes if kind == "create"]
    assert written.index(key[2], written.index(key[2]) + 1) < written.index(made[0].name), "the Secret first"
    await town.controller.stop_managing()


async def test_a_new_jobs_secret_is_made_without_asking(world: World) -> None:
    await world.leader().reconcile_secret(world.job, new=True)
    asked = [request.method for request in world.kube.server.log if request.path.endswith(world.key[2])]
    assert (asked, world.key in world.kube.objects) == ([], True)


async def test_a_new_job_keeps_the_secret_that_is_there(world: World) -> None:
    """The leader before may have ended between the Secret and the status."""
    await world.leader().reconcile_secret(world.job)
    before, leader = world.material(), world.leader()
    await leader.reconcile_secret(world.job, new=True)
    assert leader.credentials is not None
    assert (world.material(), leader.credentials.certificate) == (before, before["operator.crt"])
