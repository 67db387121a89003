"""The page for a team as the chart installs it, in a pod of a node, with tokens that the API server has issued."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest
import yaml
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from e2e.bootstrap.paths import CHECKOUT
from e2e.cluster.control_plane import ControlPlane
from e2e.harness.images import OPERATOR_IMAGE
from e2e.harness.rig import RIG_LABEL, Rig, RigLayout
from hajob.pki.signing import Signer, certificate_pem, private_key_pem, sign_authority, sign_leaf
from tests.rigs.jobs_on_server import path_of_jobs

Json = dict[str, Any]
RENDERED = CHECKOUT / "tests/integration/chart/golden"
"""What `helm template --set ui.enabled=true` gives, compared by the chart's tests."""
SERVICE = "hajob-ui.hajob-system.svc"
RENEWED_SECONDS = 240.0
"""A node looks at the Secrets of its pods every now and then, and so does the page at its files."""
LISTENS_SECONDS = 60.0
REFUSED = "hatrainingjobs: forbidden"


class TeamPage:
    """A namespace of a team with a job, and the page in a pod of another one.

    Attributes:
        plane: the control plane.
        namespace: of the team and its job.
        job: name of it.
        url: of the page.
    """

    def __init__(self, plane: ControlPlane, namespace: str, job: str) -> None:
        self.plane, self.namespace, self.job = plane, namespace, job
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def install(self, rig: Rig, golden: str = "ui.yaml") -> None:
        """Apply the Deployment of the chart into the rig, and wait until it listens."""
        whole = yaml.safe_load_all((RENDERED / golden).read_text())
        rendered = [one for one in whole if one["metadata"]["name"] == "hajob-ui"]
        for one in rendered:
            one["metadata"]["namespace"] = rig.namespace
        (deployment,) = (one for one in rendered if one["kind"] == "Deployment")
        pod = deployment["spec"]["template"]["spec"]
        pod["nodeSelector"] = {RIG_LABEL: rig.name}
        container = pod["containers"][0]
        # Every pod of this machine has the same 127.0.0.1.
        container["args"] = [f"--port={self.port}" if word == "--port=8443" else word for word in container["args"]]
        container["ports"][0]["containerPort"] = self.port
        container["image"] = OPERATOR_IMAGE
        self.plane.apply(*rendered)
        self.plane.wait("the page to listen", self._listens, LISTENS_SECONDS)

    def _listens(self) -> bool | None:
        with socket.socket() as tried:
            return tried.connect_ex(("127.0.0.1", self.port)) == 0 or None

    def write_certificate(self, namespace: str) -> str:
        """Put a certificate of a new authority into the Secret that the chart's value names; return the authority."""
        now, life = datetime.now(UTC), timedelta(days=1)
        authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
        authority = sign_authority(authority_key, "a company's", now, life)
        leaf = sign_leaf(key, SERVICE, Signer(authority, authority_key), now, life)
        files = {"tls.crt": certificate_pem(leaf).decode(), "tls.key": private_key_pem(key).decode()}
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "hajob-ui-tls", "namespace": namespace},
            "type": "kubernetes.io/tls",
            "stringData": files,
        }
        self.plane.apply(secret)
        return certificate_pem(authority).decode()

    def may_view(self, account: str) -> None:
        """Make an account that may view the team's jobs and pods, and nothing else."""
        where = ("-n", self.namespace)
        self.plane.kubectl("create", "serviceaccount", account, *where)
        what = "--resource=hatrainingjobs.training.hajob.io,pods"
        self.plane.kubectl("create", "role", account, *where, "--verb=get,list,watch", what)
        who = f"--serviceaccount={self.namespace}:{account}"
        self.plane.kubectl("create", "rolebinding", account, *where, f"--role={account}", who)

    def token_of(self, account: str, **spec: object) -> str:
        """A token that the API server issues for an account (TokenRequest)."""
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{account}/token"
        return str(self.plane.api.create(path, {"spec": spec})["status"]["token"])

    def expired(self, token: str) -> str:
        """The same token as the API server would have issued it two hours before, over since one hour."""
        head, payload, _ = token.split(".")
        claims = json.loads(_decoded(payload))
        now = int(time.time())
        claims |= {"iat": now - 7200, "nbf": now - 7200, "exp": now - 3600}
        signed = f"{head}.{_encoded(json.dumps(claims).encode())}"
        key = serialization.load_pem_private_key(
            (self.plane.layout.pki / "service-account.key").read_bytes(), password=None
        )
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        halves = decode_dss_signature(key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{signed}.{_encoded(b''.join(half.to_bytes(32) for half in halves))}"


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def browser_that_trusts(authority: str, jar: aiohttp.CookieJar) -> aiohttp.ClientSession:
    """A browser that knows servers by this authority, under the name of the chart's Service."""
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=authority), force_close=True)
    return aiohttp.ClientSession(connector=connector, cookie_jar=jar)


async def log_in(page: TeamPage, browser: aiohttp.ClientSession, token: str, namespace: str = "") -> tuple[int, str]:
    """Log in by the form; status, and the page that comes."""
    form = {"token": token, "namespace": namespace}
    async with browser.post(f"{page.url}/login", data=form, allow_redirects=False) as answer:
        return answer.status, await answer.text()


async def first_of(page: TeamPage, browser: aiohttp.ClientSession, path: str, **headers: str) -> tuple[int, str]:
    """Status, and the first that a stream tells or the refusal."""
    async with browser.get(f"{page.url}{path}", headers=headers) as answer:
        if answer.content_type != "text/event-stream":
            return answer.status, await answer.text()
        async for line in answer.content:
            if line.startswith(b"data:"):
                return answer.status, line.decode()
    raise AssertionError("the stream has ended")


def browser_of_somebody() -> aiohttp.ClientSession:
    """A browser with cookies of its own."""
    return aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))


@pytest.fixture
def page(
    control_plane: ControlPlane, crd: Json, job: Json, where: str, start_rig: Callable[[RigLayout], Rig]
) -> TeamPage:
    assert crd
    control_plane.api.create(path_of_jobs(where), job)
    made = TeamPage(control_plane, where, job["metadata"]["name"])
    made.install(start_rig(RigLayout(chip_nodes=0, chips=0, operators=0)))
    return made


async def test_real_tokens_show_what_they_may_see(page: TeamPage, namespace: str) -> None:
    page.may_view("viewer")
    page.plane.kubectl("create", "serviceaccount", "nobody", "-n", page.namespace)
    token = page.token_of("viewer")
    one_job = f"/api/jobs/{page.namespace}/{page.job}"

    async with browser_of_somebody() as browser:
        for path in ("/api/jobs", "/api/nodes", one_job, f"{one_job}/losses/0"):
            assert (await first_of(page, browser, path))[0] == 401, "without a token nothing is shown"
        for wrong in (
            page.token_of("viewer", audiences=["vault.example.org"]),
            page.expired(token),
            f"{token[:-6]}AAAAAA",
            "nonsense",
        ):
            status, told = await log_in(page, browser, wrong, page.namespace)
            assert (status, "the cluster does not accept this token" in told) == (401, True)
            bearer = {"Authorization": f"Bearer {wrong}"}
            assert (await first_of(page, browser, "/api/jobs", **bearer))[0] == 401

    async with browser_of_somebody() as browser:
        assert (await log_in(page, browser, token, page.namespace))[0] == 303
        status, told = await first_of(page, browser, "/api/jobs")
        rows = json.loads(told.removeprefix("data:"))["jobs"]
        assert [(row["namespace"], row["name"]) for row in rows] == [(page.namespace, page.job)]
        status, told = await first_of(page, browser, one_job)
        assert (status, page.job in told) == (200, True)
        status, told = await first_of(page, browser, "/api/nodes")
        assert "needs the right to" in told, "nodes it may not read"

    async with browser_of_somebody() as browser:
        for elsewhere in (namespace, "kube-system", ""):
            assert (await log_in(page, browser, token, elsewhere))[0] == 303
            told = (await first_of(page, browser, "/api/jobs"))[1]
            assert (page.job in told, REFUSED in told) == (False, True), elsewhere

    async with browser_of_somebody() as browser:
        assert (await log_in(page, browser, page.token_of("nobody"), page.namespace))[0] == 303
        told = (await first_of(page, browser, "/api/jobs"))[1]
        assert (page.job in told, REFUSED in told) == (False, True), "who may see nothing sees nothing"

    async with browser_of_somebody() as browser:
        admin = page.plane.kubectl("create", "token", "default", "-n", namespace).stdout.strip()
        name = f"reader-{namespace}"[-60:]
        page.plane.kubectl("create", "clusterrolebinding", name, "--clusterrole=cluster-admin",
                           f"--serviceaccount={namespace}:default")  # fmt: skip
        try:
            bearer = {"Authorization": f"Bearer {admin}"}
            told = (await first_of(page, browser, "/api/jobs", **bearer))[1]
            assert page.job in told, "a proxy that logs people in brings the token of one with all rights"
            assert (await first_of(page, browser, "/api/jobs"))[0] == 401, "which is nobody else's"
        finally:
            page.plane.kubectl("delete", "clusterrolebinding", name)


async def test_its_certificate_is_that_of_the_secret_now(
    control_plane: ControlPlane, crd: Json, job: Json, where: str, start_rig: Callable[[RigLayout], Rig]
) -> None:
    assert crd
    control_plane.api.create(path_of_jobs(where), job)
    page = TeamPage(control_plane, where, job["metadata"]["name"])
    rig = start_rig(RigLayout(chip_nodes=0, chips=0, operators=0))
    first = page.write_certificate(rig.namespace)
    page.install(rig, "ui-with-tls.yaml")
    page.may_view("viewer")
    by_name: Json = {"server_hostname": SERVICE, "allow_redirects": False}
    plain, page.url = page.url, f"https://127.0.0.1:{page.port}"
    jar = aiohttp.CookieJar(unsafe=True)

    async with browser_of_somebody() as browser:
        with pytest.raises(aiohttp.ClientError):
            await browser.get(plain)
    async with browser_that_trusts(first, jar) as browser:
        form = {"token": page.token_of("viewer"), "namespace": page.namespace}
        async with browser.post(f"{page.url}/login", data=form, **by_name) as answer:
            assert answer.status == 303
            assert all("Secure" in said for said in answer.headers.getall("Set-Cookie"))
        async with browser.get(f"{page.url}/healthz", **by_name) as answer:
            assert answer.status == 200

    second = page.write_certificate(rig.namespace)

    def serves_second() -> bool | None:
        trusting = ssl.create_default_context(cadata=second)
        try:
            with socket.create_connection(("127.0.0.1", page.port)) as tried:
                trusting.wrap_socket(tried, server_hostname=SERVICE).close()
        except ssl.SSLCertVerificationError:
            return None
        return True

    page.plane.wait("the renewed certificate", serves_second, RENEWED_SECONDS)
    async with browser_that_trusts(second, jar) as browser, browser.get(f"{page.url}/api/jobs", **by_name) as answer:
        assert page.job in (await answer.content.readuntil(b"\n\n")).decode(), "who had logged in still is"
