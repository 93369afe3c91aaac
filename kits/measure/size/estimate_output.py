"""Prints the estimate of the resources that a scenario needs."""

from __future__ import annotations

from rich.console import Console

from cluster.commands.console.output import plain_table, print_line
from cluster.scenario import Scenario
from kits.measure.size.estimate import Estimate


def print_estimate(console: Console, scenario: Scenario, found: Estimate, is_here: bool) -> None:
    """Print a row for each resource, and whether the scenario fits here."""
    print_line(
        console, f"{scenario.name}: {found.validators} validators on {found.hosts} hosts, {scenario.consensus.protocol}"
    )
    numbers = ("wanted", "here" if is_here else "there")
    table = plain_table(("", *numbers, "note"), right=numbers)
    table.add_row(
        "blocks/s",
        f"{found.wanted_rate:.3g}",
        f"{found.rate:.3g}",
        f"{found.rate_low:.3g} to {found.rate_high:.3g}; limited by {found.limit};"
        f" a block takes {found.block_core_ms:.0f} ms of processor time",
    )
    table.add_row("cores", f"{found.cores:.1f}", f"{found.cores_here:g}", "for the wanted rate")
    table.add_row("time", "", _duration(found.seconds), "for the scenario's heights")
    table.add_row(
        "bandwidth", "", _megabytes(found.bandwidth_bytes) + "/s", f"{found.block_bytes / 1e6:.2f} MB a block"
    )
    table.add_row("memory", _gigabytes(found.memory_bytes), _gigabytes(found.memory_here) if is_here else "", "")
    table.add_row("disk", _gigabytes(found.disk_bytes), _gigabytes(found.disk_here) if is_here else "", "at the end")
    table.add_row("open files", f"{found.files:,}", f"{found.files_here:,}" if is_here else "", "of a host")
    console.print(table)
    for warning in found.warnings:
        print_line(console, f"warning: {warning}")
    if is_here:
        for problem in found.problems:
            print_line(console, f"does not fit here: {problem}")
        if not found.problems:
            print_line(console, "fits here")


def _duration(seconds: float) -> str:
    return f"{seconds:,.0f} s" if seconds < 600 else f"{seconds / 3600:.1f} h"


def _megabytes(size: float) -> str:
    return f"{size / 1e6:.2f} MB"


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.2f} GB"
