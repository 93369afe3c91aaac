"""The JSON schema of scenario files, which editors use to complete and check them.

It is made from the scenario models: types, ranges and defaults from their fields, descriptions from their docstrings.
Forms that the models accept only while reading are added: ``extends``, short forms, and the known names of a field.
Rules between fields are not included; ``stampede validate`` checks them.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import Any, Final, get_args

from pydantic import BaseModel

from cluster.misbehaviour.byzantine.registry import BEHAVIOURS
from cluster.scenario.inheritance import EXTENDS
from cluster.scenario.metric_names import METRICS, SAMPLES
from cluster.scenario.model import Scenario
from cluster.scenario.sections.chain import ADDRESS_PATTERN, OWNER_PATTERN
from cluster.scenario.sections.faults import SHIPPED, BaseFault, kind_named
from cluster.scenario.sections.links import TOPOLOGY_NAMES
from cluster.scenario.sections.packaged import section_named, section_names, with_sections
from loadgen.workloads import WORKLOADS
from validator.chain.genesis import Policy
from validator.primitives.params import DEFAULTS, integer_range
from validator.primitives.types import DECIMAL_PATTERN

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
DEFINITIONS: Final = "$defs"

PATH_PATTERN: Final = r"/|\.py$"
"""Pattern of a Python file's path, which may be given in place of the name of a workload or policy."""

Schema = dict[str, Any]

_ROLE: Final = re.compile(r":\w+:`~?([^`]+)`")


def scenario_schema() -> Schema:
    """The schema as plain data."""
    schema = with_sections(Scenario, section_names()).model_json_schema(ref_template=f"#/{DEFINITIONS}/{{model}}")
    definitions: dict[str, Schema] = schema[DEFINITIONS]
    parts: dict[str, type[BaseModel]] = {kind.__name__: kind for kind in _kinds()}
    parts |= {_options_name(name): workload.options_type for name, workload in WORKLOADS.items()}
    for part, described in parts.items():
        fields = described.model_json_schema(ref_template=f"#/{DEFINITIONS}/{{model}}")
        definitions.update(fields.pop(DEFINITIONS, {}))
        definitions[part] = fields
    del definitions[BaseFault.__name__]
    kinds = [{"$ref": f"#/{DEFINITIONS}/{each.__name__}"} for each in _kinds()]
    schema["properties"]["faults"]["items"] = {"oneOf": kinds}
    for name, model in _models().items():
        _describe(schema if model is Scenario else definitions[name], model)
    _tidy(schema)
    _name_what_is_known(definitions)
    _add_short_forms(schema, definitions)
    return _with_inheritance(schema)


def schema_text() -> str:
    """The schema as the text of ``scenarios/schema.json``."""
    return json.dumps(scenario_schema(), indent=2, ensure_ascii=False) + "\n"


# --- descriptions ---------------------------------------------------------------------------------------------------


def _models() -> dict[str, type[BaseModel]]:
    """Every model of a scenario, keyed by the name of its definition."""
    found: dict[str, type[BaseModel]] = {}
    roots: list[type[BaseModel]] = [Scenario, *map(section_named, section_names()), *_kinds()]
    for root in roots:
        found |= {model.__name__: model for model in _reachable(root) if model is not BaseFault}
    for name, workload in WORKLOADS.items():
        for model in _reachable(workload.options_type):
            found[_options_name(name) if model is workload.options_type else model.__name__] = model
    return found


def _kinds() -> list[type[BaseFault]]:
    return [kind_named(name) for name in SHIPPED]


def _options_name(workload: str) -> str:
    return f"{workload}-options"


def _reachable(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    yield model
    for field in model.model_fields.values():
        for part in _models_in(field.annotation):
            yield from _reachable(part)


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models_in(argument)]


def _describe(schema: Schema, model: type[BaseModel]) -> None:
    texts = _field_texts(model)
    schema["description"] = plain_text(model.__doc__ or "")
    for name, field in model.model_fields.items():
        text = schema["description"] if name == "kind" else texts.get(name)
        if text:
            schema["properties"][field.alias or name]["description"] = text


def _field_texts(model: type[BaseModel]) -> dict[str, str]:
    """The docstrings of a model's fields, including those of its parents."""
    found: dict[str, str] = {}
    for parent in reversed(model.__mro__):
        if issubclass(parent, BaseModel) and parent is not BaseModel:
            found |= _own_field_texts(parent)
    return found


@cache
def _own_field_texts(model: type[BaseModel]) -> Mapping[str, str]:
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for statement, following in pairwise(definition.body):
        match statement, following:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = plain_text(text)
    return found


def plain_text(text: str) -> str:
    """A docstring as plain text: without reStructuredText markup, one line per paragraph."""
    text = _ROLE.sub(r"\1", inspect.cleandoc(text)).replace("``", "`")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def _tidy(schema: Any) -> None:
    """Remove titles derived from names, and whole sections as defaults."""
    if isinstance(schema, list):
        for item in schema:
            _tidy(item)
    if not isinstance(schema, dict):
        return
    if isinstance(schema.get("title"), str):
        del schema["title"]
    if isinstance(schema.get("default"), dict):
        del schema["default"]
    schema.pop("discriminator", None)
    for name, inner in schema.items():
        if name in ("properties", DEFINITIONS, "patternProperties"):
            for part in inner.values():
                _tidy(part)
        elif name not in ("default", "enum", "const", "required"):
            _tidy(inner)


# --- names that are known -------------------------------------------------------------------------------------------


def _name_what_is_known(definitions: dict[str, Schema]) -> None:
    node = definitions["NodeSection"]["properties"]
    node["byzantine"]["items"]["enum"] = list(BEHAVIOURS)
    success = definitions["SuccessSection"]["properties"]
    success["metrics"] = _by_name(success["metrics"], METRICS) | {"additionalProperties": {"$ref": "#/$defs/Criterion"}}
    definitions["SuccessSection"] |= {  # the checks that a scenario names may measure more
        "if": {"not": {"required": ["checks"]}},
        "then": {"properties": {"metrics": {"propertyNames": {"enum": list(METRICS)}}}},
    }
    success["samples"] = _by_name(success["samples"], SAMPLES)
    parameters = definitions["ChainSection"]["properties"]["params"]
    parameters["properties"] = {name: _parameter(name, value) for name, value in DEFAULTS.to_names().items()}
    parameters["additionalProperties"] = False
    definitions["ChainSection"]["properties"]["policy_parameters"]["additionalProperties"] = _amount(
        {"type": "integer"}
    )
    _name_owners(definitions)
    group = definitions["UserGroup"]
    _name_or_path(group["properties"]["workload"], list(WORKLOADS))
    _name_or_path(definitions["ChainSection"]["properties"]["policy"], list(Policy))
    group["properties"]["options"] = {"description": group["properties"]["options"]["description"], "type": "object"}
    group["allOf"] = [
        {
            "if": {"properties": {"workload": {"const": name}}, "required": ["workload"]},
            "then": {"properties": {"options": {"$ref": f"#/{DEFINITIONS}/{_options_name(name)}"}}},
        }
        for name in WORKLOADS
    ]


def _name_or_path(field: Schema, names: list[str]) -> None:
    path = {"type": "string", "pattern": PATH_PATTERN}
    field["anyOf"][0] = {"anyOf": [{"type": "string", "enum": names}, path]}


def _name_owners(definitions: dict[str, Schema]) -> None:
    """Restrict owners of accounts to their patterns, and allow decimal text for amounts."""
    chain, actor = definitions["ChainSection"]["properties"], definitions["ActorSection"]["properties"]
    owner = {"type": "string", "pattern": OWNER_PATTERN}
    chain["accounts"] |= {"additionalProperties": _amount(chain["accounts"]["additionalProperties"])}
    chain["accounts"]["propertyNames"] = {"pattern": OWNER_PATTERN}
    chain["system_deployers"]["items"] = owner
    actor["deployer"] |= owner
    actor["address"]["anyOf"][0]["pattern"] = ADDRESS_PATTERN
    for section, names in (("ActorSection", ["balance"]), ("FaucetSection", ["balance", "max_amount"])):
        for name in names:
            definitions[section]["properties"][name] = _amount(definitions[section]["properties"][name])
    fees = definitions["BiddingAgentSection"]["properties"]
    for name in ("max_fee_per_cycle", "max_priority_fee_per_cycle"):
        fees[name] = _amount(fees[name])


def _amount(schema: Schema) -> Schema:
    """The schema of an amount that may also be decimal text, from that of a number."""
    kept: Schema = {key: schema[key] for key in ("description", "default") if key in schema}
    number = {key: value for key, value in schema.items() if key not in kept}
    return {"anyOf": [number, {"type": "string", "pattern": DECIMAL_PATTERN}], **kept}


def _by_name(schema: Schema, names: Mapping[str, str]) -> Schema:
    """The schema of a mapping that allows these names only, each with its description."""
    value = schema["additionalProperties"]
    properties = {name: {**value, "description": text} for name, text in names.items()}
    return schema | {"properties": properties, "additionalProperties": False}


def _parameter(name: str, default: Any) -> Schema:
    bounds = integer_range(name)
    if bounds is not None:
        least, most = bounds
        number = {"type": "integer", "minimum": least, "maximum": most}
        return _amount(number | {"default": default})
    if isinstance(default, list):
        return {"type": "array", "minItems": len(default), "maxItems": len(default), "default": default}
    return {"enum": [choice.value for choice in type(default)], "default": default.value}


# --- short forms ----------------------------------------------------------------------------------------------------


def _add_short_forms(schema: Schema, definitions: dict[str, Schema]) -> None:
    validators, node = definitions["ValidatorsSection"], definitions["NodeSection"]
    count = {key: validators["properties"]["count"][key] for key in ("type", "minimum", "maximum")}
    nodes = {
        "type": "array",
        "minItems": 1,
        "items": {"anyOf": [{"$ref": f"#/{DEFINITIONS}/NodeSection"}, {"type": "null"}]},
    }
    _add_alternatives(schema["properties"]["validators"], count, nodes)
    behaviours = node["properties"]["byzantine"]
    _add_alternatives(behaviours, {"type": "string", "enum": behaviours["items"]["enum"]})
    edges = definitions["EdgesTopology"]["properties"]["edges"]
    pair = definitions["EdgeSection"]["properties"]["between"]
    short_pair = {key: value for key, value in pair.items() if key != "description"}
    edges["items"] = {"anyOf": [edges["items"], short_pair]}
    edge_list = {key: edges[key] for key in ("items", "minItems", "maxItems")}
    topology = definitions["LinksSection"]["properties"]["topology"]
    _add_alternatives(topology, {"type": "string", "enum": list(TOPOLOGY_NAMES)}, {"type": "array", **edge_list})
    definitions["FullTopology"]["required"] = ["kind"]
    name = {"type": "string", "minLength": 1}
    for section in ("ActorSection", _options_name("program")):
        _add_alternatives(definitions[section]["properties"]["program"], name)
    _add_alternatives(definitions[_options_name("governance")]["properties"]["deploys"]["items"], name)
    _add_alternatives(definitions["TracePhase"]["properties"]["points"], name)
    locustfiles = definitions["OwnLocust"]["properties"]["files"]
    _add_alternatives(locustfiles["items"], name)
    listed = {key: locustfiles[key] for key in ("type", "items", "minItems", "maxItems")}
    _add_alternatives(locustfiles, name)
    _add_alternatives(definitions["LoadPlan"]["properties"]["locust"], name, listed)


def _add_alternatives(schema: Schema, *short: Schema) -> None:
    """Let a field hold short forms, in addition to its present form."""
    kept: Schema = {key: schema.pop(key) for key in ("description", "default") if key in schema}
    long = dict(schema)
    schema.clear()
    schema.update({**kept, "anyOf": [*short, long]})


def _with_inheritance(schema: Schema) -> Schema:
    """The schema with the field ``extends`` added. A file that has it needs no other field."""
    extends = {
        "type": "string",
        "minLength": 1,
        "description": "The scenario file that this one is made from, relative to this one's folder.",
    }
    required = schema.pop("required")
    description = schema.pop("description")
    return {
        "$schema": DIALECT,
        "title": "Stampede scenario",
        "description": description,
        "type": "object",
        "properties": {EXTENDS: extends, **schema.pop("properties")},
        "anyOf": [{"required": required}, {"required": [EXTENDS]}],
        **schema,
    }
