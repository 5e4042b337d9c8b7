"""What can be set when the operator starts?

Everything has a default that suits a cluster; tests change these values, never a branch of the code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import Field, field_validator, model_validator

from plimsoll.api.allowed import Allowed, bad_entries
from plimsoll.facts.record import Record

PREFIX: Final = "PLIMSOLL_"


class Settings(Record):
    """How this operator runs. In the environment each is PLIMSOLL_ and its name in capitals."""

    kubeconfig: str | None = None
    """File with address and credentials; None takes $KUBECONFIG, then the pod's service account."""
    namespaces: tuple[str, ...] = ()
    """Namespaces to look after; empty means all."""
    identity: str
    """Who we are in the Lease; no two running operators may share it. A pod's name does."""
    lease_namespace: str = "plimsoll-system"
    """Namespace of the Lease: the operator's own."""
    lease_name: str = "plimsoll"
    """Name of the Lease."""
    lease_seconds: float = Field(default=15.0, gt=0)
    """How long others wait after the last renewal that they saw."""
    renew_deadline_seconds: float = Field(default=10.0, gt=0)
    """How long we may go on without a renewal."""
    retry_seconds: float = Field(default=2.0, gt=0)
    """Between two tries to take or renew the Lease."""
    host: str = "0.0.0.0"  # noqa: S104 - kubelet and Prometheus come from outside the pod
    """Address on which metrics and health are served."""
    metrics_port: int = Field(default=8080, ge=0, le=65535)
    """Port of /metrics; 0 serves none."""
    health_port: int = Field(default=8081, ge=0, le=65535)
    """Port of /healthz and /readyz; 0 serves none."""
    resync_seconds: float = Field(default=600.0, gt=0)
    """Between two visits to everyone, asked or not; a tenth of it is left to chance."""
    watch_check_seconds: float = Field(default=60.0, gt=0)
    """Between two comparisons of what the watch delivered with a list."""
    watch_silence_seconds: float = Field(default=70.0, gt=0)
    """A watch that says nothing for so long is asked for anew; an API server speaks every 60 s at least."""
    fleet_seconds: float = Field(default=30.0, ge=0)
    """For how long nodes and the cards that pods hold are not read again."""
    gpu_types_file: str | None = None
    """YAML or JSON with the user's own table of cards (the chart's gpuTypes); None has none."""
    gpu_facts_stale_seconds: float = Field(default=900.0, gt=0)
    """After so long without a word from a node's agent, its facts keep plans and start none."""
    workers: int = Field(default=8, ge=1, le=64)
    """Deployments that are looked after at the same time."""
    visit_seconds: float = Field(default=120.0, gt=0)
    """The longest that one visit may take."""
    stall_seconds: float = Field(default=180.0, gt=0)
    """With work due and none done for so long, the operator calls itself dead."""
    hour_seconds: float = Field(default=3600.0, gt=0)
    """Length of an hour for the detector of growth and for every default of recycling; shorter in trials
    only."""
    growth_share: float = Field(default=1.0, gt=0, le=1)
    """Part of the usual growth that the detector demands; less in trials only."""
    settle_seconds: float = Field(default=120.0, ge=0)
    """After its start the operator recycles nobody for so long."""
    inspection_image: str | None = None
    """Plimsoll's own image, in which Jobs read models' headers and probe KV cache dtypes; None does neither."""
    inspection_pull_policy: str | None = Field(
        default=None, pattern="^(Always|IfNotPresent|Never)$"
    )
    """How that image is pulled; None leaves it to Kubernetes."""
    allow_host_path: bool = False
    """Whether models may lie in folders of nodes (hostPath://)."""
    allow_foreign_code: bool = False
    """Whether engines may run code that is not in their image, such as a model's own (--trust-remote-code)."""
    allowed_images: tuple[str, ...] = ()
    """Registries, repositories or images that workers may run and models may lie in; empty for all."""
    verify_seconds: float = Field(default=5.0, gt=0)
    """Until an engine that did not say what it holds is asked again; doubled with each try."""
    verify_grace_seconds: float = Field(default=120.0, ge=0)
    """A first worker that has been Ready for so long and whose engine cannot be read holds the others of its
    plan back no longer."""
    watch_seconds: float = Field(default=30.0, gt=0)
    """Between two looks at each worker's memory and engine."""
    stale_seconds: float = Field(default=120.0, gt=0)
    """A figure older than this is no figure."""
    scrape_timeout_seconds: float = Field(default=5.0, gt=0)
    """The longest that a kubelet or an engine is waited for."""
    kubelets_at_once: int = Field(default=4, ge=1)
    """Kubelets that are asked at the same time."""
    engines_at_once: int = Field(default=64, ge=1)
    """Engines that are asked at the same time."""
    kubelet_ca_file: str | None = None
    """Authority that signs kubelets' serving certificates; None takes the cluster's own."""
    kubelet_insecure_tls: bool = False
    """Take kubelets' certificates unseen. Whoever answers in a kubelet's place then gets our token."""
    prometheus_url: str | None = Field(default=None, pattern="^https?://")
    """Prometheus server that knows memory and engines; None asks kubelets and engines themselves."""
    prometheus_token_file: str | None = None
    """File with a bearer token for it."""
    prometheus_ca_file: str | None = None
    """Authority that signs its certificate; None takes the system's."""
    floor_bin_seconds: float = Field(default=600.0, gt=0)
    """Time over which one floor of a worker's memory is taken."""
    floor_flush_seconds: float = Field(default=1800.0, gt=0)
    """The least time between two writes of a deployment's floors to its ConfigMap."""
    history_hours: float = Field(default=72.0, gt=0)
    """How far back floors are remembered."""
    log_format: str = Field(default="text", pattern="^(text|json)$")
    """Shape of the log: text or json."""
    log_level: str = Field(default="info", pattern="^(debug|info|warning|error)$")
    """The least that is logged."""

    @field_validator("namespaces", "allowed_images", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        """One string with commas is how an environment variable names several."""
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("allowed_images")
    @classmethod
    def _readable(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        """An entry with a typing error would stand for no image, and nobody would know why."""
        if bad := bad_entries(value):
            raise ValueError(
                f"{bad[0]!r} names no registry, repository or image; write registry.example.com, "
                "registry.example.com/ml or vllm/vllm-openai:v0.22.1"
            )
        return value

    @property
    def allowed(self) -> Allowed:
        """What the site allows in InferenceDeployments."""
        return Allowed(
            host_path=self.allow_host_path,
            images=self.allowed_images,
            foreign_code=self.allow_foreign_code,
        )

    @model_validator(mode="after")
    def _in_order(self) -> Settings:
        if not self.retry_seconds < self.renew_deadline_seconds < self.lease_seconds:
            raise ValueError(
                f"retrySeconds {self.retry_seconds:g} < renewDeadlineSeconds "
                f"{self.renew_deadline_seconds:g} < leaseSeconds {self.lease_seconds:g} must hold: "
                f"else two operators could write at once"
            )
        return self


def read_settings(
    environment: Mapping[str, str], *, default_identity: str, **given: object
) -> Settings:
    """From the environment, with what was given on the command line on top (None is not given).

    The identity is PLIMSOLL_IDENTITY, else POD_NAME, else `default_identity`. Raises ValueError (pydantic's
    ValidationError) naming what is wrong.
    """
    values: dict[str, Any] = {
        "identity": environment.get("POD_NAME") or default_identity,
    }
    if environment.get("POD_NAMESPACE"):
        values["lease_namespace"] = environment["POD_NAMESPACE"]
    for name in Settings.model_fields:
        if (text := environment.get(PREFIX + name.upper())) is not None:
            values[name] = text
    values |= {name: value for name, value in given.items() if value is not None}
    return Settings.model_validate(values)
