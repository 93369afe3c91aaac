"""Latencies between regions of public clouds, which a scenario can use in place of a matrix.

The values are round trips that the providers measured and published; a message takes half of one. Of the two
directions, which differ by a few milliseconds, the row of the region that comes first is used. Regions have the same
names in all matrices; ``places`` has the provider's names.

``azure``
    Median round trips over the 30 days up to 30 July 2026, of 16 of the published regions. Source: Microsoft Learn,
    "Azure network round-trip latency statistics", ``articles/networking/azure-network-latency.md`` of the repository
    MicrosoftDocs/azure-docs, dated 2026-07-30. Within a region: below 2 ms from one availability zone to another, by
    "What are availability zones?" of the same documentation.
``ibm``
    Mean round trips from 28 September to 27 October 2024. Source: IBM Cloud Docs, "Network latency",
    ``_include-segments/network-latency.md`` of the repository ibm-cloud-docs/vpc, dated 2024-10-27. Within a region:
    about 2 ms from one zone to another, by the same page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

MatrixName = Literal["azure", "ibm"]


@dataclass(frozen=True, slots=True)
class LatencyMatrix:
    """The round trips between the regions of one cloud provider, as the provider measured them."""

    places: Mapping[str, str]
    """The provider's name of each region, keyed by the region's name here."""
    round_trips_ms: Sequence[Sequence[int]]
    """For each region, the round trips to the following ones, in the order of ``places``."""
    within_ms: int
    """Round trip between zones of one region."""

    def latency_ms(self, sender: str, receiver: str) -> float:
        """Latency of a message from one region to another. Raises :class:`KeyError` for an unknown one."""
        order = {place: position for position, place in enumerate(self.places)}
        first, second = sorted((order[sender], order[receiver]))
        round_trip_ms = self.within_ms if first == second else self.round_trips_ms[first][second - first - 1]
        return round_trip_ms / 2


AZURE: Final = LatencyMatrix(
    places={
        "us-east": "East US",
        "us-central": "Central US",
        "us-west": "West US",
        "ca-central": "Canada Central",
        "sa-east": "Brazil South",
        "uk-south": "UK South",
        "eu-west": "West Europe",
        "eu-central": "Germany West Central",
        "eu-north": "Sweden Central",
        "me-central": "UAE North",
        "af-south": "South Africa North",
        "ap-south": "Central India",
        "ap-southeast": "Southeast Asia",
        "ap-east": "East Asia",
        "ap-northeast": "Japan East",
        "au-east": "Australia East",
    },
    round_trips_ms=(
        (28, 69, 18, 117, 78, 83, 94, 100, 174, 219, 198, 224, 202, 162, 201),
        (39, 29, 149, 109, 110, 119, 126, 192, 244, 223, 198, 176, 136, 176),
        (69, 169, 140, 145, 152, 162, 234, 273, 218, 170, 148, 108, 140),
        (129, 81, 90, 97, 109, 175, 230, 201, 222, 201, 160, 202),
        (181, 185, 198, 201, 277, 321, 304, 331, 307, 262, 295),
        (11, 17, 31, 119, 164, 141, 167, 200, 229, 261),
        (11, 26, 111, 166, 140, 169, 201, 233, 265),
        (28, 118, 165, 139, 166, 192, 235, 266),
        (122, 186, 157, 190, 219, 252, 285),
        (103, 32, 83, 113, 151, 173),
        (130, 177, 210, 247, 328),
        (53, 87, 122, 145),
        (36, 72, 95),
        (49, 122),
        (103,),
        (),
    ),
    within_ms=2,
)

IBM: Final = LatencyMatrix(
    places={
        "us-south": "Dallas",
        "ca-central": "Toronto",
        "us-east": "Washington DC",
        "eu-central": "Frankfurt",
        "uk-south": "London",
        "eu-south": "Madrid",
        "ap-north": "Osaka",
        "au-east": "Sydney",
        "ap-northeast": "Tokyo",
        "sa-east": "Sao Paulo",
    },
    round_trips_ms=(
        (34, 31, 123, 113, 119, 150, 185, 141, 144),
        (19, 93, 84, 108, 169, 214, 162, 131),
        (90, 76, 89, 175, 213, 169, 119),
        (13, 29, 232, 250, 231, 197),
        (27, 244, 261, 242, 188),
        (259, 275, 255, 207),
        (122, 9, 292),
        (115, 328),
        (283,),
        (),
    ),
    within_ms=2,
)

MATRICES: Final[Mapping[MatrixName, LatencyMatrix]] = {"azure": AZURE, "ibm": IBM}
