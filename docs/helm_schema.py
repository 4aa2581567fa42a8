"""Make the schema of the chart's values, `values.schema.json`, from the worker's models.

The schema has every key of the configuration with its type and meaning, so that Helm refuses a
mistake before anything is installed. It leaves out what the chart sets itself: secrets and files
(values `secrets`), and the name of a static member.
"""

from __future__ import annotations

import json
import re
from typing import Any

from docs.blocks import ROOT
from stream_dedup.config.document import Key, keys, meaning_of

SCHEMA = ROOT / "deploy" / "helm" / "stream-dedup" / "values.schema.json"

Schema = dict[str, Any]

SECTIONS = ("kafka", "index", "worker", "http", "log", "otel", "pipelines")

SECRET_SECTIONS = ("kafka", "index", "otel")

_TYPES: dict[str, Schema] = {
    "duration": {"type": ["string", "number"]},
    "size": {"type": ["string", "integer"], "minimum": 0},
    "whole number": {"type": "integer", "minimum": 0},
    "number": {"type": "number"},
    "true or false": {"type": "boolean"},
    "text": {"type": "string"},
    "list of texts": {"type": "array", "items": {"type": "string", "minLength": 1}},
    "URL": {"type": "string"},
}

_NARROWER: dict[tuple[str, str], Schema] = {
    ("http", "host"): {"minLength": 1},
    ("http", "port"): {"minimum": 1024, "maximum": 65535},
    ("pipelines", "topics"): {"minItems": 1},
    ("pipelines", "output_topic"): {"minLength": 1},
}

_SECRET_TYPES = ("secret", "file")


def given_elsewhere(key: Key) -> bool:
    """Whether the chart gives a key of the configuration by another value than `config`."""
    return key.type in _SECRET_TYPES or key.name == "group_instance_id"


def secret_files(section: str) -> list[str]:
    """The keys of a section that name a file."""
    return [key.name for key in keys() if key.section == section and key.type == "file"]


def schema_text() -> str:
    """The whole schema as a file."""
    return json.dumps(values_schema(), indent=2, ensure_ascii=False) + "\n"


def values_schema() -> Schema:
    """The whole schema."""
    properties = {
        "config": _closed({section: _section(section) for section in SECTIONS}, SECTIONS[:-1]),
        "files": {
            "type": "object",
            "description": "Files beside stream-dedup.toml, by name.",
            "propertyNames": {
                "pattern": "^[A-Za-z0-9_][A-Za-z0-9._-]*$",
                "not": {"const": "stream-dedup.toml"},
            },
            "additionalProperties": {"type": "string"},
        },
        "secrets": _closed(
            {section: _secrets(section) for section in SECRET_SECTIONS}, SECRET_SECTIONS
        ),
        **_WORKLOAD,
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the stream-dedup chart",
        **_closed({**properties, "global": {"type": "object"}}, tuple(properties)),
    }


def _section(section: str) -> Schema:
    found = {
        key.name: {**_type(key), **_NARROWER.get((section, key.name), {})}
        for key in keys()
        if key.section == section and not given_elsewhere(key)
    }
    if section != "pipelines":
        return {**_closed(found), "description": meaning_of(section)}
    table = _closed(found, ("topics", "output_topic"))
    return {"type": "array", "items": table, "description": meaning_of(section)}


def _type(key: Key) -> Schema:
    kind = _TYPES.get(key.type) or {"enum": re.split(", | or ", key.type)}
    default = f" Default: {key.default}." if key.default else ""
    return {**kind, "description": key.meaning + default}


def _secrets(section: str) -> Schema:
    return _closed(dict.fromkeys(secret_files(section), _FROM))


def _closed(properties: Schema, required: tuple[str, ...] = ()) -> Schema:
    made: Schema = {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
    }
    return {**made, "required": list(required)} if required else made


def _texts(**properties: Schema) -> Schema:
    return _closed(properties, tuple(properties))


_TEXT: Schema = {"type": "string"}
_NAME: Schema = {"type": "string", "pattern": "^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$"}
_FLAG: Schema = {"type": "boolean"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_POSITIVE: Schema = {"type": "integer", "minimum": 1}
_MAP: Schema = {"type": "object"}
_LIST: Schema = {"type": "array", "items": {"type": "object"}}
_LABELS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
_PORTS: Schema = {
    "type": "array",
    "minItems": 1,
    "items": {"type": "integer", "minimum": 1, "maximum": 65535},
}
_DURATION: Schema = {
    "type": "string",
    "pattern": "^([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$",
    "minLength": 2,
}
_ID: Schema = {"type": ["integer", "null"], "minimum": 1}

_FROM: Schema = {
    "oneOf": [
        _closed(
            {"secret": {**_NAME, "minLength": 1}, "key": {"type": "string", "minLength": 1}},
            ("secret", "key"),
        ),
        _closed({"value": {"type": "string", "minLength": 1}}, ("value",)),
    ],
    "description": "{secret: NAME, key: KEY} of a Secret that exists, or {value: TEXT}.",
}

_PROBE: Schema = _closed(
    {
        "initialDelaySeconds": _COUNT,
        "periodSeconds": _POSITIVE,
        "timeoutSeconds": _POSITIVE,
        "failureThreshold": _POSITIVE,
        "successThreshold": _POSITIVE,
    }
)

_RESOURCES: Schema = _closed({"requests": _MAP, "limits": _MAP, "claims": _LIST})

_WORKLOAD: Schema = {
    "extraEnv": _LIST,
    "extraVolumes": _LIST,
    "extraVolumeMounts": _LIST,
    "replicas": _COUNT,
    "staticMembership": _texts(enabled=_FLAG),
    "autoscaling": _texts(
        type={"enum": ["none", "hpa", "keda"]},
        minReplicas=_POSITIVE,
        maxReplicas=_POSITIVE,
        lagPerWorker=_COUNT,
        cpuPercent=_COUNT,
        scaleDownAfterSeconds={"type": "integer", "minimum": 0, "maximum": 3600},
        pollingInterval=_POSITIVE,
        triggerAuthentication=_NAME,
    ),
    "podDisruptionBudget": _texts(
        enabled=_FLAG,
        maxUnavailable={
            "type": ["integer", "string"],
            "minimum": 1,
            "pattern": "^([1-9][0-9]?|100)%$",
        },
    ),
    "image": _texts(
        repository={"type": "string", "minLength": 1},
        tag={"type": "string", "pattern": "^([A-Za-z0-9_][A-Za-z0-9._-]{0,127})?$"},
        digest={"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
        pullPolicy={"enum": ["Always", "IfNotPresent", "Never"]},
    ),
    "imagePullSecrets": _LIST,
    "resources": _RESOURCES,
    "terminationGracePeriodSeconds": _POSITIVE,
    "probes": _texts(startup=_PROBE, liveness=_PROBE, readiness=_PROBE),
    "podSecurityContext": _closed({"runAsUser": _ID, "runAsGroup": _ID, "fsGroup": _ID}),
    "serviceAccount": _texts(create=_FLAG, name=_NAME, annotations=_LABELS),
    "topologySpread": _texts(enabled=_FLAG),
    "nameOverride": _NAME,
    "fullnameOverride": _NAME,
    "podAnnotations": _LABELS,
    "podLabels": _LABELS,
    "nodeSelector": _LABELS,
    "tolerations": _LIST,
    "affinity": _MAP,
    "priorityClassName": _TEXT,
    "ui": _texts(
        enabled=_FLAG,
        token={"oneOf": [_closed({}), _FROM["oneOf"][0]]},
        userHeader={"type": "string", "pattern": "^[A-Za-z0-9-]*$"},
        readOnly=_FLAG,
        namespaces={"type": "array", "items": {"type": "string", "minLength": 1}},
        recipe=_TEXT,
        host={"type": "string", "minLength": 1},
        port={"type": "integer", "minimum": 1024, "maximum": 65535},
        allowedHosts={"type": "array", "items": {"type": "string", "minLength": 1}},
        window={"type": "string", "pattern": "^[0-9]+[smhd]$"},
        resources=_RESOURCES,
        **{"from": _LIST},
    ),
    "serviceMonitor": _texts(
        enabled=_FLAG, labels=_LABELS, interval=_DURATION, scrapeTimeout=_DURATION
    ),
    "networkPolicy": _texts(
        enabled={"enum": [True, False, "auto"]},
        metricsNamespace=_NAME,
        metricsFrom=_LIST,
        kafka=_texts(ports=_PORTS, to=_LIST),
        redis=_texts(ports=_PORTS, to=_LIST),
        otel=_texts(ports=_PORTS, to=_LIST),
        dns=_texts(to=_LIST),
    ),
}
