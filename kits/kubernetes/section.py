"""The ``kubernetes`` section of a scenario: the resources that ``stampede k8s`` requests. No backend reads it.

Quantities, image names and selectors have Kubernetes' own syntax: "Quantity" and "Labels and Selectors" in its
reference, and the grammar of image references (``github.com/distribution/reference``).
"""

from __future__ import annotations

import re
from decimal import Decimal
from importlib.metadata import version
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from cluster.scenario.sections.base import Section
from cluster.scenario.sections.packaged import PackagedSection

_QUANTITY: Final = re.compile(r"(\d{1,15}(?:\.\d{0,9})?|\.\d{1,9})([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d{1,2}|)", re.ASCII)
_SUFFIXES: Final = {
    **{f"{letter}i": Decimal(1024**power) for power, letter in enumerate("KMGTPE", 1)},
    **{letter: Decimal(1000**power) for power, letter in enumerate("kMGTPE", 1)},
    **{letter: Decimal(1000) ** -power for power, letter in enumerate("mun", 1)},
    "": Decimal(1),
}
_PATH_PART: Final = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_DOMAIN_PART: Final = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_IMAGE: Final = re.compile(
    rf"(?:{_DOMAIN_PART}(?:\.{_DOMAIN_PART})*(?::\d{{1,5}})?/)?{_PATH_PART}(?:/{_PATH_PART})*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?",
    re.ASCII,
)
MAX_IMAGE_LENGTH: Final = 512
MAX_NUMBER: Final = 10**15
"""A quantity that is given as a number must be below this."""
_LABEL: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", re.ASCII)
_SUBDOMAIN: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*", re.ASCII)
MAX_SUBDOMAIN_LENGTH: Final = 253
_BUCKET: Final = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](?:/[A-Za-z0-9_=-][A-Za-z0-9._=-]*)*", re.ASCII)
MAX_BUCKET_LENGTH: Final = 512
_ENDPOINT: Final = re.compile(rf"https?://{_DOMAIN_PART}(?:\.{_DOMAIN_PART})*(?::[1-9]\d{{0,4}})?", re.ASCII)
_PORTS: Final = {"http": 80, "https": 443}
MAX_PORT: Final = 65_535

CPU_BOUNDS: Final = ("100m", "512")
MEMORY_BOUNDS: Final = ("512Mi", "64Ti")
"""Bounds of a pod's memory. The minimum is what Ray alone takes."""
DISK_BOUNDS: Final = ("64Mi", "64Ti")


def amount_of(quantity: str) -> Decimal:
    """A quantity as a number of processors or bytes. Raises :class:`ValueError` for any other text."""
    found = _QUANTITY.fullmatch(quantity)
    if found is None:
        raise ValueError(f"expected a quantity, a number such as 2, 500m or 1.5Gi, got {quantity!r}")
    number, suffix = found.groups()
    if suffix[:1] in ("e", "E") and suffix != "E" and not suffix.endswith("i"):
        return Decimal(number + suffix)
    return Decimal(number) * _SUFFIXES[suffix]


def _within(bounds: tuple[str, str], of_what: str) -> AfterValidator:
    least, most = bounds

    def check(quantity: str) -> str:
        if not amount_of(least) <= amount_of(quantity) <= amount_of(most):
            raise ValueError(f"expected {of_what} from {least} to {most}, got {quantity!r}")
        return quantity

    return AfterValidator(check)


def _as_text(given: Any) -> Any:
    """A quantity given as a number, as text. Kubernetes accepts numbers, too. Other values are returned unchanged."""
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    return str(given) if is_number and abs(given) < MAX_NUMBER else given


_NUMBER_TOO: Final = BeforeValidator(_as_text, json_schema_input_type=str | int | float)
Cpu = Annotated[str, _within(CPU_BOUNDS, "processors"), _NUMBER_TOO]
"""A quantity of processors."""
Memory = Annotated[str, _within(MEMORY_BOUNDS, "bytes"), _NUMBER_TOO]
"""A quantity of bytes."""
Disk = Annotated[str, _within(DISK_BOUNDS, "bytes"), _NUMBER_TOO]
"""A quantity of bytes."""


def _check_image(name: str) -> str:
    if len(name) > MAX_IMAGE_LENGTH or not _IMAGE.fullmatch(name):
        raise ValueError(f"expected the name of an image, such as registry.example/stampede:0.2.0, got {name!r}")
    return name


def check_object_name(name: str) -> str:
    """Check that a text is a name for a Kubernetes object: a DNS subdomain. Returns the text.

    Raises :class:`ValueError` if it is none.
    """
    if len(name) > MAX_SUBDOMAIN_LENGTH or not _SUBDOMAIN.fullmatch(name):
        raise ValueError(
            f"expected the name of an object (lower-case letters, digits, '-' and '.', at most {MAX_SUBDOMAIN_LENGTH},"
            f" first and last a letter or a digit), got {name!r}"
        )
    return name


def check_labels(labels: dict[str, str]) -> dict[str, str]:
    """Check that texts are labels with their values, and return them. Raises :class:`ValueError` if not."""
    for key, value in labels.items():
        prefix, slash, name = key.rpartition("/")
        if not _LABEL.fullmatch(name) or bool(slash) != bool(prefix) or (prefix and not _is_subdomain(prefix)):
            raise ValueError(f"expected a label, such as kubernetes.io/arch or disk, got {key!r}")
        if value:
            check_label_value(key, value)
    return labels


def check_label_value(key: str, value: str) -> str:
    """Check that a text is a value for the label ``key``, and return it. Raises :class:`ValueError` if not."""
    if not _LABEL.fullmatch(value):
        raise ValueError(
            f"expected a label's value for {key} (letters, digits, '-', '_' and '.', at most 63, first and last a"
            f" letter or a digit), got {value!r}"
        )
    return value


def _check_bucket(address: str) -> str:
    if len(address) > MAX_BUCKET_LENGTH or not _BUCKET.fullmatch(address):
        raise ValueError(f"expected a bucket, maybe with a prefix, such as s3://results/stampede, got {address!r}")
    return address


def _check_endpoint(url: str) -> str:
    if not _ENDPOINT.fullmatch(url) or _port_of(url) > MAX_PORT:
        raise ValueError(f"expected the address of a server, such as https://minio.example:9000, got {url!r}")
    return url


def _port_of(url: str) -> int:
    scheme, _, rest = url.partition("://")
    return int(rest.partition(":")[2] or _PORTS[scheme])


def _is_subdomain(text: str) -> bool:
    return len(text) <= MAX_SUBDOMAIN_LENGTH and _SUBDOMAIN.fullmatch(text) is not None


ImageName = Annotated[str, AfterValidator(_check_image)]
ObjectName = Annotated[str, AfterValidator(check_object_name)]
Bucket = Annotated[str, AfterValidator(_check_bucket)]
Endpoint = Annotated[str, AfterValidator(_check_endpoint)]
NodeSelector = Annotated[dict[str, str], AfterValidator(check_labels)]
PodCount = Annotated[int, Field(ge=0, le=512)]
Means = Literal["pod", "node", "chaos-mesh"]
"""A value of a fault's ``how`` that needs the Kubernetes API."""


class ValidatorPods(Section):
    """The pods that run validator hosts."""

    cpu: Cpu = "1"
    """Processors: request and limit, like all values of this section."""
    memory: Memory = "2Gi"
    """Memory of all validators of the host, and of Ray."""
    disk: Disk = "2Gi"
    """Its volume."""


class DriverPod(Section):
    """The pod of Ray's head, with the driver and Locust."""

    cpu: Cpu = "2"
    """Processors."""
    memory: Memory = "3Gi"
    """Memory."""
    disk: Disk = "5Gi"
    """The volume of runs, which outlives the pod."""


class LoadPods(Section):
    """Pods for Locust's workers."""

    pods: PodCount = 0
    """Number of pods, with one worker each; with 0 Locust runs in the driver's pod."""
    cpu: Cpu = "1"
    """Processors of each."""
    memory: Memory = "1Gi"
    """Memory of each."""


class SeedPods(Section):
    """Pods for the seeds of a sweep."""

    pods: Annotated[int, Field(ge=1, le=512)] = 4
    """Maximum number of pods; they are started on demand."""
    cpu: Cpu = "1"
    """Processors of each, which is the number of seeds that run in it concurrently."""
    memory: Memory = "2Gi"
    """Memory of each."""


class KubernetesSection(PackagedSection):
    """How a testnet is deployed on Kubernetes. A run of the same scenario elsewhere ignores it."""

    image: ImageName | None = None
    """The image of all pods; by default ``stampede:`` and the installed version."""
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """When nodes pull the image."""
    pull_secret: ObjectName | None = None
    """Name of the secret that holds the registry's credentials."""
    storage_class: ObjectName | None = None
    """Storage class of all volumes; by default the cluster's."""
    validators: ValidatorPods = ValidatorPods()
    driver: DriverPod = DriverPod()
    load: LoadPods = LoadPods()
    seeds: SeedPods = SeedPods()
    spread: Literal["preferred", "required", "none"] = "preferred"
    """Whether no two pods with validators should, or must, be on one Kubernetes node."""
    node_selector: NodeSelector = {}
    """Labels of the nodes on which pods may be placed."""
    inject: list[Means] = []
    """Means by which faults may be added while a testnet is up. The driver gets the rights for them beforehand."""
    results: Bucket | None = None
    """The bucket, with a prefix, to which the driver's pod uploads the folder of each run."""
    results_endpoint: Endpoint | None = None
    """Address of the server that has the bucket; by default that of AWS in the region."""
    results_secret: ObjectName = "stampede-results"
    """Name of the secret that holds the bucket's credentials, as the variables of the environment that AWS names."""

    @property
    def image_name(self) -> str:
        """The image of all pods."""
        return self.image or f"stampede:{version('stampede')}"

    @property
    def results_port(self) -> int:
        """The port of the server that has the bucket."""
        return _port_of(self.results_endpoint or "https://")
