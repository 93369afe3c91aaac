"""The ``kubernetes`` section: quantities, images and selectors as Kubernetes takes them, one clear line for others."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from cluster.scenario import Scenario
from cluster.scenario.problems import describe
from cluster.watches.watched_simulation import simulate
from kits.kubernetes.section import KubernetesSection, amount_of


def problem(section: str) -> str:
    """The line that a section is refused with."""
    given: dict[str, Any] = {"name": "a", "kubernetes": yaml.safe_load(section)}
    with pytest.raises(ValidationError) as caught:
        Scenario.model_validate(given)
    line = describe(caught.value, given, Scenario)
    assert line.startswith("kubernetes.") and line.splitlines() == [line]
    return line


@pytest.mark.parametrize(
    ("quantity", "amount"),
    [
        ("2", "2"),
        ("500m", "0.5"),
        ("1.5", "1.5"),
        (".5", "0.5"),
        ("1.", "1"),
        ("2Gi", str(2 * 1024**3)),
        ("1.5Mi", str(3 * 2**19)),
        ("3k", "3000"),
        ("3G", "3000000000"),
        ("4E", str(4 * 10**18)),
        ("2e3", "2000"),
        ("25E-1", "2.5"),
        ("7u", "0.000007"),
    ],
)
def test_quantities_are_those_of_kubernetes(quantity: str, amount: str) -> None:
    assert amount_of(quantity) == Decimal(amount)


@pytest.mark.parametrize("quantity", ["", "-1", "1 Gi", "2gi", "2GB", "1,5", "Gi", "0x10", "1e", "١", "1\n", "."])
def test_other_texts_are_no_quantities(quantity: str) -> None:
    with pytest.raises(ValueError, match="expected a quantity"):
        amount_of(quantity)


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("validators: {cpu: two}", "validators.cpu: expected a quantity, a number such as 2, 500m or 1.5Gi, got 'two'"),
        ("results: results/a", "results: expected a bucket, maybe with a prefix, such as s3://results/stampede, got"),
        ("results: s3://results/../a", "results: expected a bucket"),
        ("results_endpoint: minio:9000", "results_endpoint: expected the address of a server, such as https://minio"),
        ("results_endpoint: http://minio:70000", "results_endpoint: expected the address of a server"),
        ("results_secret: A_B", "results_secret: expected the name of an object"),
        ("validators: {cpu: '0'}", "validators.cpu: expected processors from 100m to 512, got '0'"),
        ("validators: {cpu: -1}", "validators.cpu: expected a quantity"),
        ("driver: {cpu: 2Gi}", "driver.cpu: expected processors from 100m to 512, got '2Gi'"),
        ("driver: {memory: 512m}", "driver.memory: expected bytes from 512Mi to 64Ti, got '512m'"),
        ("driver: {memory: 4}", "driver.memory: expected bytes from 512Mi to 64Ti, got '4'"),
        ("driver: {disk: 63Mi}", "driver.disk: expected bytes from 64Mi to 64Ti, got '63Mi'"),
        ("driver: {disk: 5GB}", "driver.disk: expected a quantity"),
        ("driver: {disk: true}", "driver.disk: expected a text, got true"),
        ("driver: {cpu: .nan}", "driver.cpu: expected a text, got nan"),
        (f"driver: {{cpu: 1{'0' * 20}}}", "driver.cpu: expected a text, got "),
        ("seeds: {pods: 0}", "seeds.pods: expected at least 1, got 0"),
        ("load: {pods: -1}", "load.pods: expected at least 0, got -1"),
        ("image: Stampede:1", "image: expected the name of an image, such as registry.example/stampede:0.2.0"),
        ("image: 'stampede:'", "image: expected the name of an image"),
        ("image: stampede:1 --privileged", "image: expected the name of an image"),
        ("image: stampede@sha256:12", "image: expected the name of an image"),
        (f"image: {'a/' * 300}b", "image: expected the name of an image"),
        ("pull_policy: Sometimes", "pull_policy: expected"),
        ("pull_secret: My_Secret", "pull_secret: expected the name of an object"),
        ("storage_class: -fast", "storage_class: expected the name of an object"),
        (f"storage_class: {'a' * 254}", "storage_class: expected the name of an object"),
        ("spread: maybe", "spread: expected"),
        ("inject: [process]", "inject[0]: expected"),
        ("inject: pod", "inject: expected a list"),
        ("node_selector: {a b: c}", "node_selector: expected a label, such as kubernetes.io/arch or disk, got 'a b'"),
        ("node_selector: {/a: c}", "node_selector: expected a label"),
        ("node_selector: {A_B/a: c}", "node_selector: expected a label"),
        ("node_selector: {disk: -}", "node_selector: expected a label's value for disk"),
        (f"node_selector: {{disk: {'a' * 64}}}", "node_selector: expected a label's value for disk"),
        ("validator: {}", "validator: unknown field; did you mean validators?"),
    ],
)
def test_a_wrong_section_is_refused_in_one_line(section: str, expected: str) -> None:
    assert problem(section).startswith(f"kubernetes.{expected}")


@pytest.mark.parametrize(
    "image",
    [
        "stampede",
        "stampede:0.2.0",
        "registry.example:5000/team/stampede_x:v1",
        "localhost:5000/stampede",
        f"ghcr.io/a/b__c@sha256:{'0' * 64}",
        f"a.b/c:1@sha256:{'f' * 64}",
    ],
)
def test_images_may_have_registry_tag_and_digest(image: str) -> None:
    assert KubernetesSection(image=image).image_name == image


def test_an_unquoted_number_is_a_quantity() -> None:
    section = KubernetesSection.model_validate(yaml.safe_load("{driver: {cpu: 4, disk: 1e10}, seeds: {cpu: 0.5}}"))
    assert (section.driver.cpu, section.seeds.cpu) == ("4", "0.5")
    assert amount_of(section.driver.disk) == 10**10


def test_selectors_may_be_qualified_and_empty() -> None:
    selector = {"kubernetes.io/arch": "amd64", "disk": "ssd", "spot": ""}
    assert KubernetesSection(node_selector=selector).node_selector == selector


def test_a_simulated_run_does_not_depend_on_it() -> None:
    plan: dict[str, Any] = {"name": "a", "stop": {"height": 3}}
    other = plan | {"kubernetes": {"image": "registry.example/other:1", "validators": {"cpu": "7"}}}
    runs = [simulate(Scenario.model_validate(each), 1) for each in (plan, other)]
    assert runs[0].digest == runs[1].digest
    assert simulate(Scenario.model_validate(plan), 2).digest != runs[0].digest


def test_a_fork_cannot_change_it() -> None:
    given = {"name": "a", "forks": [{"at_height": 9, "changes": {"kubernetes.spread": "none"}}]}
    with pytest.raises(ValidationError, match=r"a fork cannot change kubernetes\.spread: no such setting of a run"):
        Scenario.model_validate(given)
