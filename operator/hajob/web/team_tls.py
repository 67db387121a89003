"""The certificate of the page for a team: of a Secret that somebody renews while the page runs, such as cert-manager.

A kubelet puts the new files into the pod; a page that read them once would serve one that has expired.
"""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import Final

from hajob.clock import Clock

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 10.0
"""Between two looks at the files: a certificate is renewed days before its end, and a kubelet takes a minute or two."""


class TeamCertificate:
    """A certificate in a directory, with tls.crt and tls.key as a Secret of type kubernetes.io/tls has them.

    Attributes:
        context: of a server; connections from now on get the newest certificate that could be read.

    Raises:
        OSError: there is none that can be used.
    """

    def __init__(self, directory: Path) -> None:
        self._files = (directory / "tls.crt", directory / "tls.key")
        self._read = self._contents()
        self.context = self._load_into(ssl.create_default_context(ssl.Purpose.CLIENT_AUTH))

    async def follow_files(self, clock: Clock) -> None:
        """Read the files again whenever they have changed, for ever."""
        while True:
            await clock.sleep(LOOK_SECONDS)
            self.take_changed_files()

    def take_changed_files(self) -> None:
        """Read the files again if they have changed; what cannot be used leaves the certificate before in use."""
        try:
            found = self._contents()
            if found == self._read:
                return
            # Half of a new pair would end every connection: it is tried apart.
            self._load_into(ssl.create_default_context(ssl.Purpose.CLIENT_AUTH))
            self._load_into(self.context)
        except OSError as problem:
            log.warning("the certificate of before is kept: %s: %s", self._files[0].parent, problem)
        else:
            self._read = found
            log.warning("serving a new certificate")

    def _contents(self) -> tuple[bytes, ...]:
        return tuple(file.read_bytes() for file in self._files)

    def _load_into(self, context: ssl.SSLContext) -> ssl.SSLContext:
        # A key behind a password is refused: without one OpenSSL would ask a terminal that nobody sits at.
        context.load_cert_chain(*self._files, password="")
        return context
