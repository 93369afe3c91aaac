"""The project's answer to a case, the reference's, and the first place where they differ."""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from cluster.tools.inspect.conform.cases.crowded import crowded_case
from cluster.tools.inspect.t8n import run_t8n
from tests.conformance import reference

Page = dict[str, Any]


def project_output(genesis: Page, blocks: list[Page]) -> Page:
    """What `stampede t8n` writes for this input. Raises BadInput."""
    with tempfile.TemporaryDirectory() as folder:
        genesis_path, blocks_path, out = (Path(folder, name) for name in ("genesis.json", "blocks.json", "out.json"))
        genesis_path.write_text(json.dumps(genesis), encoding="utf-8")
        blocks_path.write_text(json.dumps(blocks), encoding="utf-8")
        run_t8n(genesis_path, blocks_path, out)
        output: Page = json.loads(out.read_text(encoding="utf-8"))
    return output


def without_roots(output: Page) -> Page:
    """An output without its state roots, which are each implementation's own."""
    final = {name: value for name, value in output["final"].items() if name != "state_root"}
    blocks = [{name: value for name, value in block.items() if name != "state_root"} for block in output["blocks"]]
    return {**output, "blocks": blocks, "final": final}


def difference(ours: Any, theirs: Any, path: str = "$") -> str | None:
    """The first JSON path at which two values differ, and how; None when they are the same."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        if ours.keys() != theirs.keys():
            return f"{path}: only in the first {sorted(ours.keys() - theirs.keys())}, " + (
                f"only in the second {sorted(theirs.keys() - ours.keys())}"
            )
        pairs = [(f"{path}.{name}", ours[name], theirs[name]) for name in ours]
    elif isinstance(ours, list) and isinstance(theirs, list):
        pairs = [(f"{path}[{i}]", a, b) for i, (a, b) in enumerate(zip(ours, theirs, strict=False))]
        if len(ours) != len(theirs):
            pairs.append((f"{path}.length", len(ours), len(theirs)))
    else:
        same = type(ours) is type(theirs) and ours == theirs
        return None if same else f"{path}: {ours!r} in the first, {theirs!r} in the second"
    return next((found for where, a, b in pairs if (found := difference(a, b, where))), None)


def compare(genesis: Page, blocks: list[Page]) -> str | None:
    """Run both on one case; how the project (first) differs from the reference (second)."""
    return difference(without_roots(project_output(genesis, blocks)), reference.run(genesis, blocks))


def main(arguments: list[str]) -> int:
    """`python -m tests.conformance.compare SEED [MAX_BLOCKS]`: writes the case down and says how the two differ."""
    seed, *blocks = (int(argument) for argument in arguments)
    made = crowded_case(seed, *blocks)
    folder = Path(tempfile.mkdtemp(prefix=f"case-{seed}-"))
    for name, document in zip(("genesis", "blocks", "expected"), (*made, reference.run(*made)), strict=True):
        (folder / f"{name}.json").write_text(json.dumps(document, indent=1), encoding="utf-8")
    found = compare(*made)
    print(f"{folder}: {found or 'the same'}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
