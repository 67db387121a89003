"""All nodes of one process: made from the settings, started together, ended together."""

from __future__ import annotations

import asyncio
import ssl
import tempfile
from collections.abc import Iterable
from pathlib import Path

from e2e.cluster.pki import Authority, Credential
from e2e.nodes.api import ApiGate, NodeApiClient
from e2e.nodes.chips import ChipAllocator
from e2e.nodes.config import NodeSetSettings
from e2e.nodes.context import AddressPool, NodeContext
from e2e.nodes.events import EventPoster
from e2e.nodes.install import Tokens, install
from e2e.nodes.kubelet_server import KubeletServer
from e2e.nodes.node import Node
from e2e.nodes.processes import ProcessEntry, ProcessHost
from e2e.nodes.provisioner import provision


class NodeSet:
    """The nodes of this process."""

    def __init__(self, settings: NodeSetSettings) -> None:
        self.settings = settings
        self.images: dict[str, Path] = dict(settings.images)
        self.nodes: dict[str, Node] = {}
        self._authority = Authority.load(settings.authority)
        self._authority_file = settings.authority / "ca.crt"
        self._plain_context = ssl.create_default_context(cafile=str(self._authority_file))
        self._processes = ProcessHost(adopt=True)
        self._provisioner: asyncio.Task[None] | None = None
        self._provisioner_client: NodeApiClient | None = None

    async def start(self) -> None:
        """Install what the nodes need, register all of them and begin to run pods."""
        self.settings.directory.mkdir(parents=True, exist_ok=True)
        self._processes.install()
        tokens = await self._install()
        for position in range(len(self.settings.nodes)):
            node = self._make(position, tokens)
            self.nodes[node.name] = node
        await asyncio.gather(*(node.start() for node in self.nodes.values()))
        client = self._provisioner_client = self._client((), token=tokens.provisioner)
        self._provisioner = asyncio.create_task(provision(client, self.settings.directory / "claims"))

    def members(self, nodes: Iterable[Node]) -> dict[str, list[ProcessEntry]]:
        """The live processes of each container of these nodes, by the container's marker."""
        return self._processes.members(marker for node in nodes for marker in node.markers())

    async def close(self) -> None:
        """End everything, the processes of all containers included."""
        if self._provisioner and self._provisioner_client:
            self._provisioner.cancel()
            await self._provisioner_client.close()
        await asyncio.gather(*(node.close() for node in self.nodes.values()))

    async def _install(self) -> Tokens:
        admin = self._client((), self._authority.client("process-nodes-install", ["system:masters"]))
        try:
            return await install(admin)
        finally:
            await admin.close()

    def _make(self, position: int, tokens: Tokens) -> Node:
        settings, mine = self.settings, self.settings.nodes[position]
        address = settings.node_address(position)
        power, wire = ApiGate(), ApiGate()
        client = self._client((power, wire), self._authority.node_client(mine.name))
        context = NodeContext(
            name=mine.name,
            address=address,
            settings=settings,
            client=client,
            device_client=self._client((power, wire), token=tokens.device_plugin),
            power=power,
            processes=self._processes,
            chips=ChipAllocator(mine.chips, settings.chip_resource),
            addresses=AddressPool(settings.pod_addresses(position)),
            events=EventPoster(client, mine.name, address),
            images=self.images,
        )
        serving = _server_context(self._authority.node_server(mine.name, [address]), self._authority_file)
        server = KubeletServer(address, settings.kubelet_port, serving, power)
        return Node(mine, context, wire, server)

    def _client(
        self, gates: tuple[ApiGate, ...], credential: Credential | None = None, token: str = ""
    ) -> NodeApiClient:
        context = self._plain_context
        if credential:
            context = ssl.create_default_context(cafile=str(self._authority_file))
            _load(context, credential)
        return NodeApiClient(self.settings.server, context, gates, token)


def _server_context(credential: Credential, authority: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority))
    context.verify_mode = ssl.CERT_REQUIRED
    _load(context, credential)
    return context


def _load(context: ssl.SSLContext, credential: Credential) -> None:
    """OpenSSL reads certificates from files only."""
    with tempfile.TemporaryDirectory() as directory:
        certificate, key = credential.write(Path(directory), "c")
        context.load_cert_chain(certificate, key)
