"""Where is the API server, and as whom do we speak to it?

Both our client and kopf take the answer from here, so that they never disagree.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config
from pydantic import Field

from plimsoll.cluster.errors import Unauthorized
from plimsoll.facts.record import Record

# The package has types, its loaders have none.
_load_service_account: Any = load_incluster_config
_load_kubeconfig: Any = load_kube_config

SERVICE_ACCOUNT_TOKEN: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


class Access(Record):
    """An address and credentials, as plain data."""

    server: str
    """For example https://10.96.0.1:443."""
    ca_path: str | None = None
    """File with the certificate authority that signs the server's certificate."""
    insecure: bool = False
    """Whether the server's certificate is taken unseen."""
    scheme: str | None = None
    """Of the Authorization header, for example Bearer."""
    token: str | None = Field(default=None, repr=False)
    """Bearer token; never printed."""
    certificate_path: str | None = None
    """File with the client's certificate."""
    private_key_path: str | None = None
    """File with its key."""


async def sign_in(kubeconfig: str | None) -> Configuration:
    """Read credentials: the named kubeconfig, else $KUBECONFIG, else the pod's service account, else
    ~/.kube/config. Reads files only. Raises Unauthorized where there are none to be read."""
    configuration = Configuration()
    named = kubeconfig or os.environ.get("KUBECONFIG")
    try:
        if named is None and SERVICE_ACCOUNT_TOKEN.exists():
            _load_service_account(client_configuration=configuration)
        else:
            await _load_kubeconfig(
                config_file=named, client_configuration=configuration, persist_config=False
            )
    except (ConfigException, OSError) as error:
        raise Unauthorized(
            f"no credentials for the API server: {error}; name a kubeconfig with --kubeconfig or "
            f"KUBECONFIG, or run in a pod with a service account"
        ) from error
    return configuration


async def access_of(configuration: Configuration) -> Access:
    """The same as plain data. A service account's token is read from its file again when a minute
    has passed, so ask anew instead of keeping the answer."""
    header = await authorization(configuration)
    scheme, _, token = (header or "").partition(" ")
    return Access(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        scheme=scheme.capitalize() or None,
        token=token or None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
    )


async def authorization(configuration: Configuration) -> str | None:
    """The Authorization header, or None where a client certificate speaks for us."""
    settings = await configuration.auth_settings()
    return settings["BearerToken"]["value"] if "BearerToken" in settings else None
