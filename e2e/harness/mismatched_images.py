"""Training images that Hajob cannot work with, made from the good one and from whatever MindIO package is in use.

A scenario must not know which package that is. So a version that is too old is the package itself with a name taken
away, and one-sided TLS is switched on with material that is in order and that nobody on the other side asks for.
"""

from __future__ import annotations

import datetime
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from e2e.bootstrap.paths import CHECKOUT
from e2e.harness.images import mindio_directory
from trainer_sidecar.mindio_tls import copy_libraries

LEAST_BITS = 3072
"""MindIO takes no shorter key."""
DAY = datetime.timedelta(days=1)

OLDER = '''\
"""The package that comes next on the path, without one function."""

import importlib
import os
import sys

sys.path.remove(os.path.dirname(os.path.dirname(__file__)))
del sys.modules[__name__]  # the next one takes the name; what is imported in the end is what stands there
delattr(importlib.import_module(__name__ + ".{module}"), "{name}")
'''


def image_like(image: Path, directory: Path, environment: Mapping[str, str]) -> Path:
    """An image in `directory` that differs from `image` in these variables; returns its directory."""
    shutil.copytree(image, directory)
    file = directory / "image.json"
    content = json.loads(file.read_text())
    content["env"] |= environment
    file.write_text(json.dumps(content, indent=1))
    return directory


def older_mindio(directory: Path, module: str, name: str) -> dict[str, str]:
    """Variables with which the module `module` of `mindio_ttp` lacks `name`; files go to `directory`."""
    package = directory / "mindio_ttp"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(OLDER.format(module=module, name=name))
    return {"PYTHONPATH": os.pathsep.join(map(str, (directory, mindio_directory(), CHECKOUT)))}


def no_mindio() -> dict[str, str]:
    """Variables with which there is no `mindio_ttp`."""
    return {"PYTHONPATH": str(CHECKOUT)}


def torch_without_cann(directory: Path) -> dict[str, str]:
    """Variables with which torch keeps the store, and cannot be imported; files go to `directory`."""
    (directory / "torch").mkdir(parents=True)
    text = "libhccl.so: cannot open shared object file; source set_env.sh"
    (directory / "torch/__init__.py").write_text(f'raise ImportError("{text}")\n')
    return {"PYTHONPATH": os.pathsep.join(map(str, (directory, mindio_directory(), CHECKOUT))), "HAJOB_STORE": ""}


def trainer_with_tls(directory: Path) -> dict[str, str]:
    """Variables with which the trainer switches MindIO's TLS on; certificates go to `directory`."""
    directory.mkdir(parents=True)
    key = rsa.generate_private_key(public_exponent=65537, key_size=LEAST_BITS)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "trainer")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - DAY).not_valid_after(now + DAY)
    signed = builder.sign(key, hashes.SHA256())
    certificate = directory / "trainer.crt"
    for path in (certificate, directory / "ca.crt"):
        path.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    encodings = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    libraries = copy_libraries(str(directory))
    files = f"tlsCert:{certificate};tlsCaPath:{directory};tlsCaFile:ca.crt;packagePath:{libraries}"
    return {"TOY_MINDIO_TLS": f"{files};tlsPk:{key.private_bytes(*encodings).decode()}"}
