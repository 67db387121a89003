"""A controller host, a store of torch's behind it, and ranks of torch's, for whichever test asks for one."""

from tests.rigs.controller_host import host
from tests.rigs.torch_store import rank, store

__all__ = ["host", "rank", "store"]
