"""What `make house` follows through the product: a fault, a report, and the exit of a process, each on its way."""

from __future__ import annotations

from hajob.cli.injection import Injection, InjectionKind, device_config_map
from hajob.protocol import sidecar_pb2 as pb
from hajob.sources import device_info
from tests.house.walks import Walk
from tests.rigs.agent_node import NodeRig, order_to_run
from tests.rigs.coordinator import World
from tests.rigs.operator import LedOperator, OperatorWorld, RecordedChannel

NODES = 11
"""For two jobs four each for their ranks and one for the coordinator, and one for a replacement."""


async def walks_to_orders() -> tuple[Walk, Walk]:
    """Follow a broken chip from its device plugin's ConfigMap to the order, and the report of a dead process."""
    world = OperatorWorld()
    await world.kube.create_object("namespaces", "", {"metadata": {"name": "kube-system"}})
    for number in range(NODES):
        await world.chip_node(f"node-{number}")
    led = LedOperator(world)
    await led.wait_until_leading()
    fault = await fault_to_order(world, await world.train("broken"), "broken-1-")
    report = report_to_order(await world.train("dead"))
    await led.end()
    return fault, report


async def fault_to_order(world: OperatorWorld, channel: RecordedChannel, pod: str) -> Walk:
    """Break a chip under a pod."""
    walk, ordered = Walk(device_info.parse_device_info), len(channel.orders)
    channel.ordered = walk.end
    pods = [raw async for page in world.kube.list_pages("pods", "default") for raw in page.items]
    node = next(raw["spec"]["nodeName"] for raw in pods if raw["metadata"]["name"].startswith(pod))
    body = device_config_map(
        None, Injection.with_usual_values(InjectionKind.CHIP, node, 1), world.clock.now_milliseconds()
    )
    with walk.recorded():
        await world.kube.create_object("configmaps", "kube-system", body)
        await world.until(lambda: len(channel.orders) > ordered)
    return walk


def report_to_order(channel: RecordedChannel) -> Walk:
    """Report that a process has died."""
    walk, ordered = Walk(), len(channel.orders)
    channel.ordered = walk.end
    died = pb.Fact(id="exit-1", kind=pb.PROCESS_EXITED, node_rank=1, ranks=[2], incarnation=1, exit_code=-9, step=5)
    with walk.recorded():
        channel.report(died, step=5)
    assert len(channel.orders) > ordered
    return walk


def exit_to_stop_train() -> Walk:
    """Follow the exit of a process from the launcher's message to the request that MindIO stops."""
    agent, coordinator = NodeRig(), World()
    coordinator.train(1)
    agent.script()
    agent.order(order_to_run(2), order_to_run(3))
    for rank in (2, 3):
        agent.process(rank)
    while agent.node.next_report() is not None:
        """What was there before the exit is reported."""
    walk, peer = Walk(), coordinator.agent(1)
    with walk.recorded():
        agent.process(3, running=False, exit_code=-9)
        walk.next_stack()
        facts = agent.report().facts
        walk.next_stack()
        coordinator.core.apply_agent_report(peer.uid, peer.report(list(facts)), coordinator.now)
        walk.next_stack()
        requests = coordinator.core.job.effects.take_requests()
    assert [request.call for request in requests] == ["stop_train"]
    return walk
