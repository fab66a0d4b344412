"""Who may do what: passwords, certificates, tokens, access lists, limits."""

from headgate.access.guard import Guard, examine
from headgate.access.hooked import HookedGatekeeper
from headgate.access.passwords import PasswordFile, delete_user, set_password
from headgate.access.permissions import AccessList, Permissions

__all__ = [
    "AccessList",
    "Guard",
    "HookedGatekeeper",
    "PasswordFile",
    "Permissions",
    "delete_user",
    "examine",
    "set_password",
]
