"""Who am I: the calls wrangler makes to find its account. And the first token of an account."""

from typing import Any

from courier.core import keys
from courier.core.types import Key, Tenant
from courier.credentials import DialectAccess
from courier.dialects.cloudflare import wire
from courier.dialects.cloudflare.paging import Paged, page
from courier.dialects.site import Family, SiteServices
from courier.web import Call, Route

PREFIX = "/client/v4"


class CloudflareAccess(DialectAccess):
    name = "cloudflare"

    def __init__(self, url: str) -> None:
        self.base_url = url + PREFIX

    def first_keys(self, tenant: Tenant) -> tuple[list[Key], dict[str, Any]]:
        key, token = keys.new_key(
            tenant=tenant.id, name="first", grants=keys.grants(["write"]), now_ms=tenant.created_ms
        )
        return [key], {"account_id": tenant.id, "api_token": token}

    def example(self, part: dict[str, Any]) -> tuple[str, str]:
        account, token = part.get("account_id", "ID"), part.get("api_token", "TOKEN")
        return (
            "Cloudflare Queues",
            f"curl -X POST {self.base_url}/accounts/{account}/queues \\\n"
            f"  -H 'Authorization: Bearer {token}' \\\n"
            '  -d \'{"queue_name":"hello"}\'',
        )

    def example_of(self, key: Key, secret: str) -> tuple[str, str] | None:
        if key.kind == "connected_app":
            return None
        return (
            "Cloudflare Queues",
            f"curl {self.base_url}/accounts/{key.tenant}/queues \\\n"
            f"  -H 'Authorization: Bearer {secret}'",
        )


class IdentityRoutes(Family[SiteServices]):
    family = "identity"

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/user/tokens/verify", self.verify_token, "any", "own", "Check this token",
                  result=wire.TokenResult),
            Route("GET", "/user", self.user, "any", "own", "Who this token belongs to",
                  result=wire.CloudflareUserResult),
            Route("GET", "/accounts", self.accounts, "any", "own", "Accounts this token can use",
                  result=list[wire.AccountResult]),
            Route("GET", "/memberships", self.memberships, "any", "own", "The same, as memberships",
                  result=list[wire.MembershipResult]),
            Route("GET", "/accounts/{account_id}/workers/services/{service}", self.service, "any",
                  "own",
                  "A worker's environment", result=wire.ServiceResult),
        ]  # fmt: skip

    def _account(self, call: Call) -> wire.AccountResult:
        assert call.key is not None
        tenant = self._records.get(Tenant, call.key.tenant)
        assert tenant is not None, "a key without its tenant"
        return wire.AccountResult(tenant.id, tenant.name)

    async def verify_token(self, call: Call) -> wire.TokenResult:
        return wire.TokenResult(call.actor.id, "active")

    async def user(self, call: Call) -> wire.CloudflareUserResult:
        account = self._account(call)
        return wire.CloudflareUserResult(account.id, f"{account.name}@courier.invalid")

    async def accounts(self, call: Call) -> Paged:
        return page(call.request, [self._account(call)], per_page=20, per_page_max=50)

    async def memberships(self, call: Call) -> Paged:
        account = self._account(call)
        rows = [wire.MembershipResult(account.id, "accepted", account)]
        return page(call.request, rows, per_page=20, per_page_max=50)

    async def service(self, _: Call) -> wire.ServiceResult:
        return wire.ServiceResult({"environment": "production"})
