"""The dashboard's pages, one module each with its PAGE. The navigation lists every module of this package."""

import pkgutil
from functools import cache
from importlib import import_module

from csi.web.page_rendering import DashboardPage


@cache
def pages() -> tuple[DashboardPage, ...]:
    modules = [import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
    return tuple(sorted((module.PAGE for module in modules), key=lambda page: page.place))
