"""``stampede k8s run`` and ``up``: a scenario in a cluster, from its file to its verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cluster.commands.console.crashes import command_folder
from cluster.commands.run.scenario_run import changed_scenario
from cluster.common.checkout import UNKNOWN_COMMIT
from cluster.common.errors import BadInput, ExitCode, HarnessError
from cluster.common.interrupts import Interrupts
from cluster.common.outcome import Outcome
from cluster.record.folder import (
    REPORT_FILE,
    TOKEN_FILE,
    UPLOADED_FILE,
    complete_folder,
    point_latest,
    read_result,
    unjudged_result,
)
from cluster.report.run_index import refresh_index
from cluster.scenario import Scenario
from cluster.scenario.files import find_scenario, load_scenario, scenario_hash
from cluster.scenario.overrides import Change
from kits.kubernetes.client.cluster import Object, Place, connect
from kits.kubernetes.client.errors import ClusterError
from kits.kubernetes.client.fetching import BadArchive, print_report
from kits.kubernetes.client.job import Endpoint, Job
from kits.kubernetes.client.objects import check_rights, how_to_delete, make_room
from kits.kubernetes.client.progress import notice
from kits.kubernetes.names import RUN_FORMS, RUNS_PATH, SCENARIO_PATH
from kits.kubernetes.render import manifests
from kits.kubernetes.render.deployment import START_TIMEOUT_S, Deployment, Monitoring
from kits.kubernetes.render.objects import results_pod
from kits.kubernetes.render.planning import Plan, plan_of
from kits.kubernetes.section import KubernetesSection


@dataclass(frozen=True, slots=True)
class Asked:
    """The options that ``run`` and ``up`` share."""

    scenario: Path
    place: Place
    name: str | None = None
    """Name of the deployment; ``None`` derives one from the scenario's name."""
    words: Sequence[str] = ("run",)
    """What the driver does, as for ``stampede k8s render --command``."""
    seed: int | None = None
    changes: Sequence[Change] = ()
    duration_s: int | None = None
    stop_on_fail: bool = False
    monitoring: Monitoring | None = None
    start_timeout_s: int = START_TIMEOUT_S
    """Time limit for the driver to start, or for the testnet of ``up`` to be up."""


# --- run ------------------------------------------------------------------------------------------------------------

SKIPPED: Final = "interrupted"
"""Reason, in a message, why a run's folder was not fetched: a second signal skipped that."""


def run_on_kubernetes(asked: Asked, out: Path | None = None, keep: bool = False) -> ExitCode:
    """Do a driver's work in a cluster, show its progress and verdict, fetch its folder, and delete all objects.

    With ``keep`` the volumes stay. Returns the driver's exit code. Raises :class:`BadInput` before any object is
    created, and :class:`ClusterError`.
    """
    plan = _plan(asked)
    deployment = _deployment(asked, plan, plan.command)
    objects = manifests(plan.scenario, deployment)
    with command_folder(out, plan.title) as folder, Interrupts() as interrupts:
        run = _Run(asked, plan.scenario, deployment, _job(asked, deployment, interrupts, objects), folder, keep)
        run.perform(objects)
        return run.conclude()


class _Run:
    """One run in a cluster, and the local folder into which its folder is fetched."""

    def __init__(
        self, asked: Asked, scenario: Scenario, deployment: Deployment, job: Job, folder: Path, keep: bool
    ) -> None:
        self._asked, self._scenario, self._deployment = asked, scenario, deployment
        self._job, self._folder, self._keep = job, folder, keep
        self._failure: ClusterError | None = None
        """Why the job could not be followed to its end."""
        self._unfetched = ""
        """Why the run's folder could not be fetched; empty if it was fetched."""
        self._is_interrupted = False

    def perform(self, objects: Sequence[Object]) -> None:
        """Create the objects, follow the run, fetch its folder, delete the objects. Raises :class:`BadInput`."""
        try:
            try:
                self._job.create(objects)
                self._job.follow(self._asked.start_timeout_s)
            except ClusterError as error:
                self._failure = error
            except KeyboardInterrupt:
                self._note_interrupt("the run is stopped and its folder fetched; another Ctrl-C skips that")
                self._stop()
            self._fetch_in_spite_of_one_signal()
        except KeyboardInterrupt:
            self._note_interrupt("everything is deleted")
            self._unfetched = SKIPPED
        finally:
            self._delete()

    def conclude(self) -> ExitCode:
        """Complete the local folder, and print the path of the report. Returns the run's exit code.

        If the driver has never run, this raises the error that ended the run.
        """
        job = self._job
        if not job.has_run:
            if self._is_interrupted:
                raise KeyboardInterrupt
            raise self._failure or ClusterError(f"{self._deployment.name}: ended before its driver ran: {job.end}")
        if self._failure is not None:
            notice(str(self._failure))
        if job.exit_code == ExitCode.BAD_INPUT:
            return ExitCode.BAD_INPUT  # the driver has printed the reason
        code = self._of_one_run() if self._deployment.is_live else self._of_many_runs()
        if job.exit_code == ExitCode.CRASH:
            return ExitCode.CRASH
        return ExitCode.INCONCLUSIVE if self._is_interrupted and code == ExitCode.PASS else code

    def _of_one_run(self) -> ExitCode:
        """Complete the local folder of a run, and print the path of its report. Returns the verdict's exit code."""
        folder = self._folder
        seed = self._scenario.seed if self._asked.seed is None else self._asked.seed
        about = {
            "scenario": self._scenario.name,
            "backend": "live",
            "seed": seed,
            "commit": UNKNOWN_COMMIT,
            "version": None,  # that of the image, which nothing has told
            "scenario_hash": scenario_hash(self._scenario),
        }
        result = unjudged_result(about, self._why_unjudged())
        with _written(folder):
            complete_folder(folder, result)
            point_latest(folder)
            refresh_index(folder)
        verdict = Outcome(read_result(folder)["verdict"])
        if not (folder / REPORT_FILE).exists():
            notice(f"verdict  {verdict.value}: {self._why_unjudged()}")
        print_report(folder)
        return ExitCode[verdict.name]

    def _of_many_runs(self) -> ExitCode:
        """Print the path of the summary of simulated runs. Returns the driver's exit code: it is their verdict."""
        with _written(self._folder):
            refresh_index(self._folder)
        print_report(self._folder)
        if self._job.exit_code is None or self._unfetched:
            notice(f"verdict  inconclusive: {self._why_unjudged()}")
            return ExitCode.INCONCLUSIVE
        return self._job.exit_code

    def _note_interrupt(self, what: str) -> None:
        self._is_interrupted = True
        notice(f"interrupted: {what}")

    def _stop(self) -> None:
        """Stop the driver. An error is only noted, so that the run's folder is fetched in any case."""
        try:
            self._job.stop()
        except ClusterError as error:
            self._failure = error

    def _why_unjudged(self) -> str:
        """Why the driver wrote no result."""
        if self._unfetched:
            return f"the run's folder was not fetched: {self._unfetched}"
        if self._is_interrupted:
            return "interrupted"
        return f"the driver's pod was lost, or its driver killed; the job: {self._failure or self._job.end}"

    def _fetch_in_spite_of_one_signal(self) -> None:
        try:
            self._fetch()
        except KeyboardInterrupt:
            if self._is_interrupted:
                raise
            self._note_interrupt("another Ctrl-C skips the fetching of the run's folder")
            self._fetch()

    def _fetch(self) -> None:
        if not self._job.has_run or self._job.exit_code == ExitCode.BAD_INPUT:
            return
        try:
            self._job.fetch(results_pod(KubernetesSection.of(self._scenario), self._deployment), self._folder)
        except (ClusterError, BadArchive) as error:
            self._unfetched = str(error)
        except OSError as error:
            self._unfetched = f"{error.filename or self._folder}: {error.strerror or error}"

    def _delete(self) -> None:
        """Delete all objects. The volumes are kept if fetching the folder failed, but not if a signal skipped it, and
        if the folder is not in its bucket."""
        is_lost = self._unfetched not in ("", SKIPPED)
        keeps = self._keep or is_lost or self._misses_bucket()
        name, namespace = self._deployment.name, self._asked.place.namespace
        try:
            self._job.delete(keeps)
        except ClusterError as error:
            notice(f"not everything could be deleted: {error}; {how_to_delete(name, namespace)}")
        if keeps and self._job.has_run:
            what = "tries again" if is_lost else "fetches the run again"
            notice(f"the volumes are kept: stampede k8s report {name} --namespace {namespace} {what}")

    def _misses_bucket(self) -> bool:
        """Whether the run's folder was fetched, and should be in a bucket but is not. Says so."""
        bucket, is_fetched = KubernetesSection.of(self._scenario).results, any(self._folder.iterdir())
        if bucket is None or not is_fetched or (self._folder / UPLOADED_FILE).exists():
            return False
        notice(f"{bucket}: has not got the whole run")
        return True


# --- up -------------------------------------------------------------------------------------------------------------


def up_on_kubernetes(asked: Asked, port: int, faucet: bool) -> ExitCode:
    """Start a testnet that runs in a cluster until it is deleted, and print how to reach it.

    Raises :class:`BadInput` before any object is created. If the testnet does not come up, or at a signal, all objects
    are deleted; then it raises :class:`ClusterError` or :class:`KeyboardInterrupt`.
    """
    plan = _plan(asked, faucet)
    deployment = _deployment(asked, plan, ("up", SCENARIO_PATH, "--port", str(port)))
    objects = manifests(plan.scenario, deployment)
    with Interrupts() as interrupts:
        job = _job(asked, deployment, interrupts, objects)
        try:
            job.create(objects)
            endpoint = job.follow_until_up(asked.start_timeout_s)
        except (ClusterError, KeyboardInterrupt):
            job.delete(keeps_volumes=False)
            raise
        job.leave()
    _say_how_to_reach(asked.place.namespace, deployment.name, endpoint)
    return ExitCode.PASS


def _say_how_to_reach(namespace: str, name: str, endpoint: Endpoint) -> None:
    token = f"{RUNS_PATH}/{name}/{TOKEN_FILE}"
    notice(f"the testnet is up; it stays until: {how_to_delete(name, namespace)}")
    notice(f"endpoint  kubectl --namespace {namespace} port-forward pod/{endpoint.pod} {endpoint.port}")
    notice(f"          curl http://127.0.0.1:{endpoint.port}/status")
    notice(f"token     kubectl --namespace {namespace} exec {endpoint.pod} -- cat {token}")
    notice(f"faults    stampede k8s inject {name} FAULT --namespace {namespace}")


# --- parts ----------------------------------------------------------------------------------------------------------


@contextmanager
def _written(folder: Path) -> Iterator[None]:
    """What cannot be written inside the block raises :class:`HarnessError`."""
    try:
        yield
    except OSError as error:
        raise HarnessError(f"{error.filename or folder}: {error.strerror}") from None


def _plan(asked: Asked, faucet: bool = False) -> Plan:
    """What the driver does, with all changes. Raises :class:`BadInput`."""
    work, path = asked.words[0], find_scenario(asked.scenario)
    refused = {
        "--for": asked.duration_s is not None and work != "run",
        "--seed": asked.seed is not None and work not in ("run", "drill"),
        "--stop-on-fail": asked.stop_on_fail and work == "dos",
    }
    if work == "soak":
        raise BadInput(f"--command soak: has no driver to follow: expected {RUN_FORMS}")
    for option, is_refused in refused.items():
        if is_refused:
            raise BadInput(f"{option}: not with --command {work}")

    def load(changes: Sequence[Change]) -> Scenario:
        if work == "run":
            return changed_scenario(path, changes, "live", asked.duration_s, faucet)[0]
        return load_scenario(path, changes)

    return plan_of(asked.words, load, asked.changes)


def _deployment(asked: Asked, plan: Plan, command: tuple[str, ...]) -> Deployment:
    """The deployment that the options ask for. ``command`` is the driver's command, without these options."""
    name = plan.name if asked.name is None else asked.name
    options = ["--out", f"{RUNS_PATH}/{name}"]
    options += [] if asked.seed is None else ["--seed", str(asked.seed)]
    options += ["--stop-on-fail"] if asked.stop_on_fail else []
    return Deployment(
        name=name,
        namespace=asked.place.namespace,
        command=(*command, *options),
        scenario_text=plan.text(asked.scenario),
        monitoring=asked.monitoring,
        start_timeout_s=max(START_TIMEOUT_S, asked.start_timeout_s),
    )


def _job(asked: Asked, deployment: Deployment, interrupts: Interrupts, objects: Sequence[Object]) -> Job:
    """Connect to the cluster, and return the new job. An earlier run of the same name that has ended is deleted.

    Raises :class:`BadInput`, and :class:`ClusterError` for rights that are missing, among others.
    """
    cluster, namespace = connect(asked.place.context, interrupts.wait), asked.place.namespace
    check_rights(cluster, namespace, "up" if deployment.is_endless else "run", objects)
    make_room(cluster, namespace, deployment.name, notice)
    return Job(cluster, namespace, deployment.name, interrupts, notice)
