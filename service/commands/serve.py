"""Where ``shardproof serve`` may listen."""

from __future__ import annotations

from service.api.origin import is_loopback
from service.commands.refused import Refused
from service.keyring import Keyring
from service.settings import Settings
from service.store import Store


def check_address(settings: Settings, store: Store) -> None:
    """
    Raises:
        Refused: when others could reach the service and no key would keep them out.
    """
    if not is_loopback(settings.host) and not Keyring(store).usable():
        raise Refused(
            f"SHARDPROOF_HOST is {settings.host}, which other machines can reach, and there is no key that opens "
            "anything: without keys only a loopback address may be served. Create one first with "
            "`shardproof keys create NAME --scope admin`"
        )
