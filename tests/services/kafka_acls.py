"""What a broker's authorizer lets its users do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.services.kafka_client import CALL_S
from tests.services.processes import wait_until

Resource = Literal["topic", "group", "transactional_id", "broker"]

_ANY = AclBindingFilter(
    *(ResourceType.ANY, None, ResourcePatternType.ANY, None, None),
    *(AclOperation.ANY, AclPermissionType.ANY),
)


class Authorizing(ABC):
    """A broker that was made with `authorizer=True`: nobody may do what nothing allows."""

    @abstractmethod
    def admin(self) -> AdminClient:
        """A client of one who may do anything."""

    def allow(self, user: str, operation: str, resource: Resource, name: str) -> None:
        """Permit a user something, from now on.

        Args:
            user: A user's name; `ANONYMOUS`, or a certificate's `CN=localhost`, without SASL.
            operation: `read`, `write`, `describe`, `create`, `idempotent_write`, `all`, …
            resource: The kind of what it is permitted on.
            name: Its name; `*` is any. The broker's is `kafka-cluster`.
        """
        wanted = AclBinding(*_parts(user, operation, resource, name))
        admin = self.admin()
        admin.create_acls([wanted], request_timeout=CALL_S)[wanted].result(CALL_S)
        wait_until(lambda: wanted in _allowed(admin), what=f"{wanted} holds")

    def disallow(self, user: str, operation: str, resource: Resource, name: str) -> None:
        """Take back what `allow` permitted."""
        parts = _parts(user, operation, resource, name)
        which, gone = AclBindingFilter(*parts), AclBinding(*parts)
        admin = self.admin()
        admin.delete_acls([which], request_timeout=CALL_S)[which].result(CALL_S)
        wait_until(lambda: gone not in _allowed(admin), what=f"{gone} is taken back")


def _allowed(admin: AdminClient) -> list[AclBinding]:
    found: list[AclBinding] = admin.describe_acls(_ANY).result(CALL_S)
    return found


def _parts(user: str, operation: str, resource: Resource, name: str) -> tuple[Any, ...]:
    return (
        *(ResourceType[resource.upper()], name, ResourcePatternType.LITERAL),
        *(f"User:{user}", "*", AclOperation[operation.upper()], AclPermissionType.ALLOW),
    )
