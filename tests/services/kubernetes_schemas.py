"""Writes the schemas of Kubernetes objects into a folder; run by the Python that has them.

`find_schemas` runs it in an environment of its own. PyPI's kubernetes-validate carries the schemas
of Kubernetes itself, cloudcoil's models those of KEDA and of the Prometheus Operator, as classes of
pydantic.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

CUSTOM = {
    "scaledobject-keda-v1alpha1": ("cloudcoil.models.keda.v1alpha1", "ScaledObject"),
    "servicemonitor-monitoring-v1": ("cloudcoil.models.prometheus_operator.v1", "ServiceMonitor"),
}
"""File, as kubeconform looks for it → the module and the class that have the schema."""


def write(folder: Path, versions: list[str]) -> None:
    """Write a folder ``VERSION`` for each version of Kubernetes, and ``custom``."""
    package = import_module("kubernetes_validate").__file__
    shipped = Path(str(package)).parent / "kubernetes-json-schema"
    for version in versions:
        made = folder / version
        made.mkdir(parents=True)
        for path in (shipped / f"v{version}.0-local-strict").glob("*.json"):
            # They name themselves and the definitions by addresses of a server that is not there.
            text = path.read_text("utf-8").replace(
                '"/api/_definitions.json#', '"_definitions.json#'
            )
            schema = json.loads(text)
            schema.pop("$id", None)
            (made / path.name).write_text(json.dumps(schema), "utf-8")
    custom = folder / "custom"
    custom.mkdir(parents=True)
    for name, (module, kind) in CUSTOM.items():
        schema = closed(getattr(import_module(module), kind).model_json_schema(by_alias=True))
        (custom / f"{name}.json").write_text(json.dumps(schema), "utf-8")


def closed(schema: Any) -> Any:
    """A schema that takes no property it does not name."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: closed(each) for name, each in schema.items()}
    if isinstance(made.get("properties"), dict) and made.get("type") == "object":
        made.setdefault("additionalProperties", False)
    return made


if __name__ == "__main__":
    write(Path(sys.argv[1]), sys.argv[2:])
