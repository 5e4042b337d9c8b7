"""Who is who in the control plane: two authorities, their certificates, and kubeconfigs.

Made with the openssl command line, thrown away with the folder. Keys are P-256: fast to make.
"""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

DAYS: Final = "365"
# Addresses that stand-in kubelets answer on: loopback, and those of a private network namespace.
KUBELET_ADDRESSES: Final = (
    "127.0.0.1",
    *(f"127.0.0.{n}" for n in range(11, 61)),
    *(f"10.250.0.{n}" for n in range(11, 31)),
)


@dataclass(frozen=True)
class Identity:
    """A name with a key, signed by an authority."""

    certificate: Path
    key: Path


class Pki:
    """The folder of keys and certificates."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.ca = self.authority("ca")
        self.front_proxy_ca = self.authority("front-proxy-ca")
        self.service_accounts = self.signing_key("service-accounts")

    def authority(self, name: str) -> Identity:
        """A self-signed authority."""
        made = self._identity(name)
        self._key(made.key)
        openssl(
            *("req", "-x509", "-new", "-key", made.key, "-out", made.certificate),
            *("-subj", f"/CN={name}", "-days", DAYS),
            *("-addext", "basicConstraints=critical,CA:TRUE"),
            *("-addext", "keyUsage=critical,keyCertSign,cRLSign,digitalSignature"),
        )
        return made

    def client(self, name: str, subject: str, signer: Identity | None = None) -> Identity:
        """A certificate that says who calls."""
        return self._signed(name, subject, "extendedKeyUsage=clientAuth", signer)

    def server(self, name: str, subject: str, also: Sequence[str]) -> Identity:
        """A certificate that says who answers, with `IP:` and `DNS:` names."""
        usage = f"extendedKeyUsage=serverAuth\nsubjectAltName={','.join(also)}"
        return self._signed(name, subject, usage, None)

    def signing_key(self, name: str) -> Identity:
        """The key pair of service-account tokens; the certificate's place holds the public key."""
        made = Identity(self.folder / f"{name}.pub", self.folder / f"{name}.key")
        self._key(made.key)
        openssl("pkey", "-in", made.key, "-pubout", "-out", made.certificate)
        return made

    def _identity(self, name: str) -> Identity:
        return Identity(self.folder / f"{name}.crt", self.folder / f"{name}.key")

    def _key(self, path: Path) -> None:
        openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", path)

    def _signed(self, name: str, subject: str, usage: str, signer: Identity | None) -> Identity:
        made = self._identity(name)
        by = signer or self.ca
        request = self.folder / f"{name}.csr"
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(f"keyUsage=critical,digitalSignature\n{usage}\n")
        self._key(made.key)
        openssl("req", "-new", "-key", made.key, "-subj", subject, "-out", request)
        openssl(
            *("x509", "-req", "-in", request, "-out", made.certificate, "-days", DAYS),
            *("-CA", by.certificate, "-CAkey", by.key),
            *("-set_serial", f"0x{secrets.token_hex(8)}", "-extfile", extensions),
        )
        return made


def openssl(*args: str | Path) -> None:
    done = subprocess.run(["openssl", *map(str, args)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"openssl {args[0]} failed: {done.stderr.strip()}")


def write_kubeconfig(
    path: Path,
    *,
    server: str,
    user: str,
    ca: Path | None,
    credentials: dict[str, str],
    namespace: str = "default",
) -> Path:
    """A kubeconfig with one context; `credentials` is the user entry."""
    cluster = {"server": server} | ({"certificate-authority": str(ca)} if ca else {})
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "plimsoll", "cluster": cluster}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [
            {
                "name": "plimsoll",
                "context": {"cluster": "plimsoll", "user": user, "namespace": namespace},
            }
        ],
        "current-context": "plimsoll",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(document))
    return path
