"""The admin API: one module per resource, each with its OPERATIONS. A new module here is served and described."""

import pkgutil
from importlib import import_module

from csi.web.operation_definition import Operation


def operations() -> list[Operation]:
    modules = [import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
    return [one for module in modules for one in getattr(module, "OPERATIONS", ())]
