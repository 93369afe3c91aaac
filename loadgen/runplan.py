"""The input of a run of the load generator (the plan file) and its output (the statistics).

Both are JSON. The program that starts the load writes the plan file; :mod:`loadgen.run` writes the statistics at the
end.
"""

from __future__ import annotations

import json
from collections import Counter
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator, model_validator
from pydantic_core import PydanticSerializationError

from loadgen.workloads import LoadPlan, Population
from loadgen.workloads.locustfiles import CHAIN_USERS
from loadgen.workloads.measures import LoadTimeline, Sends
from validator.primitives.params import ParameterError, Parameters

LOCUSTFILE = Path(__file__).with_name("locustfile.py")
"""The project's Locustfile, which has the load's users."""

LOCUSTFILE_OF_THE_MASTER = "-"
"""Value of Locust's option ``--locustfile`` with which a worker gets all Locustfiles from its master."""

OWN_FILES_SUFFIX = ".locustfiles"
"""Suffix of the folder next to the plan with the custom Locustfiles."""

STOP_TIMEOUT_S = 2
"""Seconds that Locust waits for requests in progress when it stops."""

MAX_REASONS = 20
"""Maximum number of errors, or of reasons for rejections, with a separate count; all others count as ``other``."""

OTHER_REASONS = "other"

MAX_RUN_TIME_S = 31 * 86_400
"""Maximum duration of a load: a month."""


class PlanError(Exception):
    """A plan file is missing or invalid. The message is one line."""


def _check_endpoint(endpoint: str) -> None:
    if not endpoint.startswith("http://") or endpoint.endswith("/"):
        raise ValueError(f"{endpoint!r} is no endpoint: expected http://host:port")


class RunPlan(BaseModel):
    """The content of a plan file, which is the input of a run of the load generator."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    chain_id: str
    seed: Annotated[int, Field(ge=0, lt=2**64)]
    endpoints: Annotated[list[str], Field(min_length=1)] | None = None
    """The validators' HTTP endpoints, as ``http://host:port``; ``None`` if there is an ``endpoints_file``."""
    endpoints_file: str | None = None
    """Path of a file with the endpoints as a JSON list. Processes prepare themselves, then wait until the file exists.
    A validator that moves gets another endpoint at the same index of the list."""
    load: LoadPlan
    params: dict[str, Any] = {}
    """The chain's parameters that differ from the defaults, by their names, such as ``MAX_TTL``."""
    run_time_s: Annotated[int, Field(ge=1, le=MAX_RUN_TIME_S)] = 3_600
    """Seconds after which the load ends by itself."""
    began_epoch_ms: Annotated[int, Field(ge=0)] | None = None
    """Time at which the load first began, in milliseconds since the epoch, if this run continues a load that ended
    early. Due times are then as if the load had not ended, and turns that were due in between are left out."""
    stats_file: str
    """Path of the file to which the statistics are written."""

    @field_validator("endpoints")
    @classmethod
    def _endpoints_are_urls(cls, endpoints: list[str] | None) -> list[str] | None:
        for endpoint in endpoints or ():
            _check_endpoint(endpoint)
        return endpoints

    @model_validator(mode="after")
    def _endpoints_come_from_somewhere(self) -> RunPlan:
        if (self.endpoints is None) == (self.endpoints_file is None):
            raise ValueError("expected either endpoints or endpoints_file")
        return self

    @field_validator("params")
    @classmethod
    def _parameters_are_right(cls, params: dict[str, Any]) -> dict[str, Any]:
        try:
            Parameters.from_names(params)
        except ParameterError as error:
            raise ValueError(str(error)) from None
        return params

    @staticmethod
    def read(path: Path) -> RunPlan:
        """Read and check a plan file. Raises :class:`PlanError`."""
        try:
            return load_json(RunPlan, path.read_bytes())
        except OSError as error:
            raise PlanError(f"{path}: cannot be read: {error.strerror}") from None
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False)[0]
            place = ".".join(str(part) for part in first["loc"])
            reason = " ".join(first["msg"].removeprefix("Value error, ").split())
            raise PlanError(f"{path}: {place or 'plan'}: {reason}") from None

    @property
    def process_count(self) -> int:
        """Number of Locust processes: as planned, but not more than Locust users unless there are custom ones."""
        if self.load.locust is not None:
            return self.load.processes
        return min(self.load.processes, self.load.client_count)

    @property
    def needs_master(self) -> bool:
        """Whether a master has to distribute the users: there are custom users or a shape, and several processes."""
        return self.load.locust is not None and self.process_count > 1

    @property
    def own_user_count(self) -> int:
        """Number of custom Locust users; unused if a custom shape decides the number of users."""
        return 0 if self.load.locust is None else self.load.locust.user_count

    @property
    def reporting(self) -> range:
        """Numbers of the processes that create a ready file: only the master's, if there is one."""
        return range(1 if self.needs_master else self.process_count)

    def write_locustfiles(self, folder: Path) -> list[Path]:
        """Prepare the files that Locust loads, and return their paths.

        Without custom Locustfiles that is :data:`LOCUSTFILE`. Otherwise a module with the load's users and the custom
        files are written to ``folder``. Locust sends these to workers that request them.
        """
        if self.load.locust is None:
            return [LOCUSTFILE]
        first = "from loadgen.locustfile import ChainUser" if self.load.user_count else "import loadgen.locustfile"
        texts = {f"{CHAIN_USERS}.py": f"{first}  # noqa: F401\n"}
        texts |= {own.file: own.source for own in self.load.locust.files}
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
        return [folder / name for name in texts]

    def share(self, process: int) -> range:
        """The numbers of the Locust users of one process, distributed round-robin."""
        return range(process, self.load.client_count, max(1, self.process_count))

    def population(self) -> Population:
        """All load users of the plan, to be built one by one."""
        return Population(self.load, self.seed, self.chain_id, Parameters.from_names(self.params))

    def known_endpoints(self) -> list[str] | None:
        """The validators' endpoints; ``None`` until their file exists. Raises :class:`PlanError` if it is invalid."""
        if self.endpoints_file is None:
            return self.endpoints
        try:
            endpoints = TypeAdapter(list[str]).validate_json(Path(self.endpoints_file).read_bytes(), strict=True)
            for endpoint in endpoints:
                _check_endpoint(endpoint)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise PlanError(f"{self.endpoints_file}: no list of endpoints: {' '.join(str(error).split())}") from None
        return endpoints

    def ready_file(self, process: int) -> Path:
        """The file that a process creates once it is prepared and waits for nothing but the endpoints."""
        return Path(f"{self.stats_file}.{process}.ready")

    @property
    def port_file(self) -> Path:
        """The file in which a master writes the port at which it listens for workers."""
        return Path(f"{self.stats_file}.port")

    def share_file(self, process: int) -> Path:
        """The file with the statistics of one process."""
        return Path(f"{self.stats_file}.{process}")


class LateCause(StrEnum):
    """Why a transaction was sent late."""

    LOOP = "loop"
    """The Locust process was behind with its work, or with starting its users."""
    ANSWERS = "answers"
    """The user still waited for a validator's answer."""
    UNCONFIRMED = "unconfirmed"
    """The user had the maximum number of unconfirmed transactions."""


class Statistics(BaseModel):
    """Counts of requests, failures and transactions, of one process or of all. Times are milliseconds since the epoch,
    by the clock of the process's machine."""

    requests: int = 0
    """HTTP requests of every kind."""
    failures: int = 0
    """Requests without a successful answer: no connection, a time-out, an error status."""
    transactions_sent: int = 0
    """Number of sendings of transactions that a validator answered: one that was sent again counts again."""
    transactions_rejected: int = 0
    """Transactions that the mempool refused."""
    errors: dict[str, int] = {}
    """Failures by reason."""
    rejections: dict[str, int] = {}
    """Refused transactions by reason."""
    late_by_cause: dict[LateCause, int] = {}
    """Number of late transactions of open loops, by the cause of their lateness."""
    lost: list[str] = []
    """Lost workers, and reasons for which the load ended early, one line each; only the first ones if there are
    many."""
    is_whole: bool = True
    """Whether no process ended early, and each left its statistics."""
    sends: Sends = Sends()
    """Counts and due times of transactions, by workload."""
    timeline: LoadTimeline = LoadTimeline()
    """Counts and response times of requests, by the time at which they ended."""

    def plus(self, other: Statistics) -> Statistics:
        return Statistics(
            requests=self.requests + other.requests,
            failures=self.failures + other.failures,
            transactions_sent=self.transactions_sent + other.transactions_sent,
            transactions_rejected=self.transactions_rejected + other.transactions_rejected,
            errors=bounded_reasons(Counter(self.errors) + Counter(other.errors)),
            rejections=bounded_reasons(Counter(self.rejections) + Counter(other.rejections)),
            late_by_cause=dict(Counter(self.late_by_cause) + Counter(other.late_by_cause)),
            lost=[*self.lost, *other.lost][:MAX_REASONS],
            is_whole=self.is_whole and other.is_whole,
            sends=self.sends.plus(other.sends),
            timeline=self.timeline.plus(other.timeline),
        )

    def write(self, path: Path) -> None:
        write_whole(path, self.model_dump_json() + "\n")


def write_whole(path: Path, text: str) -> None:
    """Write a file atomically: a reader never sees a part of it."""
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def bounded_reasons(counts: Counter[str]) -> dict[str, int]:
    """The counts of the :data:`MAX_REASONS` most frequent reasons; those of all others are added up as ``other``."""
    kept = dict(counts.most_common(MAX_REASONS))
    rest = counts.total() - sum(kept.values())
    if rest:
        kept[OTHER_REASONS] = kept.get(OTHER_REASONS, 0) + rest
    return kept


# --- models as JSON -----------------------------------------------------------------------------------------------

M = TypeVar("M", bound=BaseModel)


def dump_json(model: BaseModel, indent: int | None = None, **which: Any) -> str:
    """A model as JSON, for a process of ours; ``which`` are options of :meth:`pydantic.BaseModel.model_dump_json`.

    A byte of a path that is not UTF-8 is a lone surrogate in Python. Pydantic neither writes nor reads one in JSON.
    Python's own module does both, by an escape.
    """
    try:
        return model.model_dump_json(indent=indent, **which)
    except PydanticSerializationError:
        return json.dumps(model.model_dump(mode="json", **which), indent=indent)


def load_json(kind: type[M], text: str | bytes) -> M:
    """The model in a text of :func:`dump_json`. Raises :class:`pydantic.ValidationError`."""
    if (b"\\ud" if isinstance(text, bytes) else "\\ud") in text:  # type: ignore[operator]
        return kind.model_validate(json.loads(text))
    return kind.model_validate_json(text)
